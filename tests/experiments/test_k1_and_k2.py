"""k1 and k2: gradients over training, from the curves that result.json keeps."""

from math import isnan
from typing import Any

import pytest
from made_up import made_up_result
from matplotlib.figure import Figure
from matplotlib.text import Text

from contune.experiments import find_experiment
from contune.experiments.curve import curve
from contune.experiments.k1_figure import k1_figure
from contune.experiments.k2_figure import k2_figure
from contune.experiments.outcome import Outcome
from contune.experiments.response_panels import NO_CURVES
from contune.experiments.responses import responses

POSITIVE = [0.1, 0.3]


def outcomes(name: str, **changes: Any) -> list[Outcome]:
    curves = {"epoch": [1.0, 2.0], "positive_gradient": POSITIVE, "negative_gradient": [0.02, 0.01]}
    beside = {"supcon_positive_gradient": [0.08, 0.2], "supcon_negative_gradient": [0.03, 0.02]}
    tuned = curves | beside | {"theorem1_share": [0.8, 0.9]}
    return [
        Outcome(row, (made_up_result(row, linear=70.0 + number, **{"curves": tuned if number else curves} | changes),))
        for number, row in enumerate(find_experiment(name).rows)
    ]


def words(figure: Figure) -> set[str]:
    return {text.get_text() for text in figure.findobj(Text) if isinstance(text, Text)}


def test_a_curve_is_the_mean_over_seeds_and_may_have_gaps() -> None:
    (first, *_) = outcomes("fig-k1-digits")
    other = first.results[0] | {"curves": {"epoch": [1.0, 2.0], "positive_gradient": [0.3, None]}}
    cut_short = first.results[0] | {"curves": {"epoch": [1.0], "positive_gradient": [9.0]}}
    found = curve(Outcome(first.row, (*first.results, other, cut_short)), "positive_gradient")
    assert found is not None
    assert found.values[0] == pytest.approx(0.2)
    assert isnan(found.values[1])
    assert found.mean == pytest.approx(0.2)
    assert curve(first, "theorem1_share") is None


def test_the_table_has_accuracies_and_gradients() -> None:
    table = responses("", outcomes("fig-k2"))
    assert table.columns == (
        "loss", "top-1 %", "over SupCon", "paper", "from positives", "SupCon's there", "from negatives",
        "SupCon's there", "theorem 1 holds, %",
    )  # fmt: skip
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["SupCon", "70.00", "–", "–", "0.2", "–", "0.015", "–", "–"],
        ["TCL, k1 = 50,000, k2 = 1", "71.00", "+1.00", "71.8", "0.2", "0.14", "0.015", "0.025", "85"],
        ["TCL, k1 = 50,000, k2 = 3", "72.00", "+2.00", "76.2", "0.2", "0.14", "0.015", "0.025", "85"],
    ]
    assert any(note.startswith("theorem 1 holds: the share") for note in table.notes)


def test_k1_has_a_curve_and_a_point_for_each_value() -> None:
    figure = k1_figure("A title", outcomes("fig-k1"))
    assert {"A title", "TCL, k1 = 10", "50,000", "SupCon", "mean gradient from positives", "open: the paper"} <= words(
        figure
    )
    left, right, accuracy = figure.axes
    assert [list(line.get_ydata()) for line in left.lines] == [POSITIVE] * 9  # type: ignore[arg-type]
    *shares, zero = [list(line.get_ydata()) for line in right.lines]  # type: ignore[arg-type]
    assert shares == [pytest.approx([25.0, 50.0])] * 8
    assert zero == [0, 0]
    hollow = [(*line.get_xdata(), *line.get_ydata()) for line in accuracy.lines if line.get_markerfacecolor() == "none"]  # type: ignore[misc]
    assert hollow == [(50000, 71.8)]


def test_values_that_have_not_been_run_have_no_line_in_the_legend() -> None:
    (supcon, first, second, *others) = outcomes("fig-k1")
    missing = [Outcome(each.row) for each in (second, *others[1:])]
    found = words(k1_figure("", [supcon, first, others[0], *missing]))
    assert {"TCL, k1 = 10", "1,000"} <= found
    assert "50,000" not in found


def test_all_of_a_long_legend_is_inside_the_figure() -> None:
    figure = k1_figure("A title", outcomes("fig-k1"))
    figure.draw_without_rendering()
    assert figure.legends[0].get_window_extent().x1 < figure.bbox.x1


def test_k2_has_a_panel_for_each_value_on_the_same_scale() -> None:
    figure = k2_figure("A title", outcomes("fig-k2"))
    left, right = figure.axes
    assert {"TCL, k1 = 50,000, k2 = 1", "TCL, k1 = 50,000, k2 = 3"} <= words(figure)
    assert [len(axes.lines) for axes in (left, right)] == [3, 3], (
        "TCL, SupCon, and SupCon's formula on the same batches"
    )
    assert left.get_ylim() == right.get_ylim()


def test_results_without_curves_say_so() -> None:
    bare = outcomes("fig-k1-digits", curves={})
    table = responses("", bare)
    assert table.columns == ("loss", "top-1 %", "over SupCon")
    assert NO_CURVES in words(k1_figure("", bare))
    assert NO_CURVES in words(k2_figure("", outcomes("fig-k2-digits", curves={})))


def test_nothing_at_all_is_drawn_too() -> None:
    waiting = [Outcome(row, num_missing=1) for row in find_experiment("fig-k1").rows]
    assert responses("", waiting).rows[0][1].text == "not run yet"
    k1_figure("", waiting)
