"""Many seeds: means, paired differences and their test, against scipy."""

import pytest
from made_up import made_up_result
from matplotlib.text import Text
from scipy.stats import ttest_rel  # type: ignore[import-untyped]  # without stubs

from contune.experiments import find_experiment
from contune.experiments.outcome import Outcome
from contune.experiments.repeated import p_text, repeated
from contune.experiments.strips import strips

EXPERIMENT = find_experiment("ci")
ENTROPY, SUPCON, TCL = [70.0, 71.0, 69.5, 70.2], [74.5, 75.5, 74.7, 74.2], [75.1, 75.9, 75.6, 74.9]


def outcomes() -> list[Outcome]:
    return [
        Outcome(row, tuple(made_up_result(row, seed, linear=x, knn=x - 1) for seed, x in enumerate(values)))
        for row, values in zip(EXPERIMENT.rows, (ENTROPY, SUPCON, TCL), strict=True)
    ]


def test_the_paired_test_is_scipys() -> None:
    table = repeated("", outcomes())
    cells = {row[0].text: [cell.text for cell in row[1:]] for row in table.rows}
    for name, above, below in (("TCL − SupCon", TCL, SUPCON), ("SupCon − Cross-entropy", SUPCON, ENTROPY)):
        test = ttest_rel(above, below)
        low, high = test.confidence_interval(0.95)
        assert cells[name][0] == f"{(low + high) / 2:+.2f} ± {(high - low) / 2:.2f}"
        assert cells[name][3:5] == ["4", p_text(float(test.pvalue))]
    assert cells["TCL − SupCon"][5] == "+0.93"
    assert cells["SupCon − Cross-entropy"][5] == "–"


def test_what_the_seeds_say_is_said() -> None:
    entropy, supcon, tcl = outcomes()
    close = Outcome(tcl.row, tuple(made_up_result(tcl.row, seed, linear=75.0) for seed in range(4)))
    assert repeated("", [entropy, supcon, tcl]).findings == (
        "By the fast probe, which both have, SupCon is above Cross-entropy: "
        "0 is outside the interval of their difference.",
        "TCL is above SupCon: 0 is outside the interval of their difference.",
    )
    assert repeated("", [tcl, supcon]).findings[-1].startswith("TCL is above SupCon")
    assert repeated("", [supcon, close]).findings[-1] == (
        "TCL and SupCon are not told apart by 4 seeds: 0 is in the interval of their difference."
    )


def test_methods_are_judged_by_what_was_measured_alike() -> None:
    """A classifier that is worse than the other's probe says nothing of the features below it."""
    entropy, supcon, _ = outcomes()
    rows = [made_up_result(entropy.row, seed, linear=x + 9, classifier=x) for seed, x in enumerate(ENTROPY)]
    table = repeated("", [Outcome(entropy.row, tuple(rows)), supcon])
    assert table.columns[1:4] == ("top-1 %", "fast probe %", "kNN %")
    assert [cell.text.split()[0] for cell in table.rows[0][1:3]] == ["70.17", "79.17"]
    assert table.findings[-1].startswith("By the fast probe, which both have, Cross-entropy is above SupCon")
    assert "fast probe %" not in repeated("", [supcon]).columns
    drawn = strips("", [Outcome(entropy.row, tuple(rows)), supcon]).axes[1]
    assert "by the fast probe of both" in [text.get_text() for text in drawn.texts]
    means = [line.get_xdata()[0] for line in drawn.lines if line.get_marker() == "D"]  # type: ignore[index]
    assert means == pytest.approx([4.55, -4.45]), "the figure has both, as the table does"


def test_methods_have_the_papers_interval_beside_theirs() -> None:
    table = repeated("", outcomes())
    assert [cell.text for cell in table.rows[2]] == [
        "TCL", "75.38 ± 0.73", "75.38 ± 0.73", "74.38 ± 0.73", "4", "–", "75.72 ± 0.16",
    ]  # fmt: skip
    assert [row[1].strong for row in table.rows[:3]] == [False, False, True]
    assert any("two-sided paired t-test" in note for note in table.notes)


def test_very_small_values_are_bounded() -> None:
    assert [p_text(p) for p in (None, 0.0, 0.012345, 1.0)] == ["–", "< 0.0001", "0.012", "1"]


def test_one_seed_has_differences_without_a_verdict() -> None:
    single = [Outcome(each.row, each.results[:1]) for each in outcomes()]
    table = repeated("", single)
    assert [cell.text for cell in table.rows[-1]] == ["TCL − SupCon", "+0.60", "+0.60", "+0.60", "1", "–", "+0.93"]
    assert not any("paired" in note for note in table.notes)
    strips("", single)


def test_the_figure_has_every_seed_and_the_papers_marks() -> None:
    figure = strips("A title", outcomes())
    shown = {text.get_text() for text in figure.findobj(Text) if isinstance(text, Text)}
    assert {"A title", "TCL − SupCon", "SupCon − Cross-entropy", "open: the paper", "difference, points"} <= shown
    seeds = [line for line in figure.axes[0].lines if line.get_marker() == "|"]
    assert [list(line.get_xdata()) for line in seeds] == [ENTROPY, SUPCON, TCL]  # type: ignore[arg-type]
    hollow = [line for line in figure.axes[0].lines if line.get_markerfacecolor() == "none"]
    assert [line.get_xdata()[0] for line in hollow] == [74.79, 75.72]  # type: ignore[index]


def test_runs_that_are_missing() -> None:
    waiting = [Outcome(row, num_missing=5) for row in EXPERIMENT.rows]
    assert [row[1].text for row in repeated("", waiting).rows] == ["not run yet"] * 3 + ["–"] * 2
    shown = [text.get_text() for text in strips("", waiting).findobj(Text) if isinstance(text, Text)]
    assert shown.count("not run yet") == 3
