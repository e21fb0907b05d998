"""The table and the figure of made-up results: what stands in them, and what they say of rows without a number."""

from typing import Any

import pytest
from made_up import PIXELS_KNN, PIXELS_LINEAR, made_up_result
from matplotlib.text import Text

from contune.experiments.comparison import comparison
from contune.experiments.dots import dots
from contune.experiments.outcome import Outcome
from contune.experiments.plan import PIXELS, Row
from contune.experiments.table import Table
from contune.report.statistics import Spread

GOOD = Row(title="Good", recipe="digits-simclr", beside={"paper": 70.9, "library": 70.0})
BETTER = Row(title="Better", recipe="digits-tcl-ssl", beside={"library": 71.25})
RANDOM = Row(title="Random", recipe="digits-simclr", overrides=("optim.epochs=0",), is_baseline=True)
RAW = Row(title="Raw pixels", recipe="digits-simclr", measured=PIXELS, is_baseline=True)


def runs(row: Row, *linear: float, **changes: Any) -> Outcome:
    return Outcome(row, tuple(made_up_result(row, seed, linear=x, **changes) for seed, x in enumerate(linear)))


def cells(table: Table, title: str) -> dict[str, str]:
    row = next(row for row in table.rows if row[0].text == title)
    return {column: cell.text for column, cell in zip(table.columns, row, strict=True)}


def words(outcomes: list[Outcome]) -> list[str]:
    return [text.get_text() for text in dots("title", outcomes).findobj(Text) if isinstance(text, Text)]


def test_mean_and_interval_over_seeds() -> None:
    # Student's t at 97.5 % for two degrees of freedom is 4.303; 4.303 · 1 / √3 = 2.48.
    assert str(Spread.of([95.0, 96.0, 97.0])) == "96.00 ± 2.48"
    assert str(Spread.of([95.0])) == "95.00"


def test_a_row_has_its_numbers_and_those_of_others() -> None:
    table = comparison(
        "A title", [runs(GOOD, 95.0, 96.0, 97.0, epochs=20), runs(BETTER, 98.0), runs(RANDOM, 50.0, epochs=0)]
    )
    assert cells(table, "Good") == {
        "method": "Good", "linear %": "96.00 ± 2.48", "over random": "+46.00", "kNN %": "80.00 ± 0.00", "epochs": "20",
        "views": "2", "seeds": "3", "paper": "70.9", "library": "70.00", "training": "30 s",
    }  # fmt: skip
    assert cells(table, "Better")["paper"] == "–"
    assert cells(table, "Better")["library"] == "71.25"
    assert [len(group) for group in table.groups] == [2, 1], "baselines are apart"
    assert table.title == "A title"


def test_the_highest_stands_out_and_a_baseline_never_does() -> None:
    table = comparison("", [runs(GOOD, 95.0), runs(BETTER, 98.0), runs(RANDOM, 99.0)])
    assert [[cell.text for cell in row if cell.strong] for row in table.rows] == [["80.00"], ["98.00", "80.00"], []]
    assert cells(table, "Good")["over random"] == "−4.00"


def test_raw_pixels_have_no_seeds() -> None:
    table = comparison("", [runs(GOOD, 95.0, 96.0), runs(RAW, 10.0, 20.0), runs(RANDOM, 50.0)])
    assert cells(table, "Raw pixels") == {
        "method": "Raw pixels", "linear %": f"{PIXELS_LINEAR}", "over raw pixels": "–", "kNN %": f"{PIXELS_KNN}",
        "epochs": "–", "views": "–", "seeds": "–", "paper": "–", "library": "–", "training": "–",
    }  # fmt: skip


def test_the_online_probe_where_it_was_logged() -> None:
    outcome = runs(GOOD, 95.0, last_logged={"online_top1": 0.875})
    table = comparison("", [outcome, runs(BETTER, 96.0)])
    assert cells(table, "Good")["online probe %"] == "87.50"
    assert cells(table, "Better")["online probe %"] == "–"
    assert any(note.startswith("online probe: on the last training views") for note in table.notes)
    assert "online probe %" not in comparison("", [runs(BETTER, 96.0)]).columns


def test_what_went_wrong_is_said() -> None:
    collapsed = runs(GOOD, 12.0, rank=1.02)
    failed = Outcome(BETTER, failures=("seed 0: the loss became nan.",))
    waiting = Outcome(RANDOM, num_missing=2)
    some = Outcome(RAW, runs(RAW, 95.0).results, ("seed 1: no.",), num_missing=1)
    outcomes = [collapsed, failed, waiting, some]
    table = comparison("", outcomes)
    remarks = [row[-1].text for row in table.rows]
    assert remarks == ["collapsed", "failed", "not run yet", "1 of 3 failed, 1 of 3 not run yet"]
    assert cells(table, "Better")["linear %"] == "–"
    assert "Good, seed 0: the features collapsed, their effective rank is 1.02." in table.notes
    assert "Better, seed 0: the loss became nan." in table.notes
    assert {"collapsed", "failed", "not run yet"} <= set(words(outcomes))


def test_notes_of_some_runs_say_of_which() -> None:
    shared = runs(GOOD, 98.0, 97.0, note="two runs shared this machine")
    assert comparison("", [shared, runs(BETTER, 97.0)]).notes[-1] == "Good: two runs shared this machine."
    others = Outcome(GOOD, (*shared.results[:1], *runs(GOOD, 98.0, 97.0).results[1:]))
    assert comparison("", [others]).notes[-1] == "Good (seed 0): two runs shared this machine."
    one = [runs(GOOD, 98.0, note="it was night"), runs(BETTER, 97.0, note="it was day")]
    assert comparison("", one).notes[-2:] == ("Good: it was night.", "Better: it was day.")


def test_notes_have_protocols_hardware_and_how_sure_one_seed_is() -> None:
    one = comparison("", [runs(GOOD, 98.0, note="two runs shared this machine")]).notes
    assert one[0] == (
        "Top-1 on the test split after the last epoch; in bold the highest. "
        "One seed each: an accuracy of 98 % on 899 images has a standard error of 0.5 points."
    )
    assert one[1].startswith("linear: logistic regression on cached frozen features")
    assert one[2].startswith("kNN: weighted kNN")
    assert one[3] == "training: one run on cpu, 2 threads."
    assert one[4].startswith("On a CPU")
    assert one[5] == "Two runs shared this machine."
    assert "95 % confidence interval over seeds" in comparison("", [runs(GOOD, 98.0, 97.0)]).notes[0]


def test_nothing_at_all_is_drawn_too() -> None:
    nothing = [Outcome(GOOD, num_missing=1)]
    assert comparison("", nothing).notes == ()
    assert "not run yet" in words(nothing)


def test_the_figure_ranks_rows_and_labels_what_others_report() -> None:
    shown = words([runs(RANDOM, 99.0), runs(GOOD, 95.0), runs(BETTER, 98.0)])
    names = [text for text in shown if text in ("Good", "Better", "Random")]
    assert names == ["Better", "Good", "Random"]
    assert {"title", "98.0", "95.0", "linear probe", "kNN", "paper", "library"} <= set(shown)


def test_a_collapsed_run_does_not_stretch_the_figure() -> None:
    good, bad = Row(title="good", recipe="digits-simclr"), Row(title="bad", recipe="digits-tcl-ssl")
    figure = dots("", [runs(good, 98.0, knn=97.0), runs(bad, 10.0, knn=10.0, rank=1.01)])
    assert figure.axes[0].get_xlim() == pytest.approx((96.5, 98.5))
