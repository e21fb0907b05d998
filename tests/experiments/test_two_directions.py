"""Tables and figures of methods by data sets or by values of a setting, from made-up results."""

from typing import Any

import pytest
from made_up import made_up_result
from matplotlib.figure import Figure
from matplotlib.text import Text

from contune.experiments.grid import grid
from contune.experiments.lines import sweep_figure
from contune.experiments.outcome import Outcome
from contune.experiments.panels import panels
from contune.experiments.plan import Row, point
from contune.experiments.sweep import sweep_table
from contune.experiments.table import Table

ONE = {name: point(name, "one", recipe, paper=paper) for name, recipe, paper in (
    ("Cross-entropy", "digits-ce", 95.0), ("SupCon", "digits-supcon", 96.25), ("TCL", "digits", 96.5),
)}  # fmt: skip
OTHER = {name: point(name, "other", row.recipe, "optim.lr=0.3") for name, row in ONE.items()}


def runs(row: Row, *linear: float, **changes: Any) -> Outcome:
    return Outcome(row, tuple(made_up_result(row, seed, linear=x, **changes) for seed, x in enumerate(linear)))


def texts(table: Table) -> list[list[str]]:
    return [[cell.text for cell in row] for row in table.rows]


def words(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.findobj(Text) if isinstance(text, Text)]


def hollow(figure: Figure) -> list[float]:
    """Where the paper's marks are, on the axis of accuracies of a panel."""
    return [
        float(line.get_xdata()[0])  # type: ignore[index, arg-type]  # a list of one
        for line in figure.axes[0].lines
        if line.get_marker() not in ("None", None, "") and line.get_markerfacecolor() == "none"
    ]


def test_seeds_that_are_missing_are_said_beside_the_others_mean() -> None:
    some = Outcome(ONE["TCL"], runs(ONE["TCL"], 95.0).results, num_missing=1)
    assert texts(grid("", [some]))[0] == ["TCL", "95.00 (1 of 2 not run yet)", "96.5"]


def test_notes_say_where_runs_differ_in_more_than_the_method() -> None:
    short = runs(ONE["SupCon"], 95.0, epochs=3, git_revision="0123456789ab")
    notes = grid("", [short, runs(ONE["TCL"], 96.0, 97.0, git_revision="fedcba987654")]).notes
    assert "Encoder: resnet-mini. Epochs of training: 20; 3 (SupCon, one)." in notes
    assert "Runs of several revisions of contune. 0123456: SupCon, one. fedcba9: TCL, one." in notes


def test_methods_by_data_sets_with_the_papers_beside() -> None:
    outcomes = [runs(ONE["Cross-entropy"], 94.0), runs(ONE["SupCon"], 95.0), runs(ONE["TCL"], 97.0),
                runs(OTHER["SupCon"], 71.0), runs(OTHER["TCL"], 70.5)]  # fmt: skip
    table = grid("A title", outcomes)
    assert table.columns == ("method", "one", "paper", "other")
    assert texts(table) == [
        ["Cross-entropy", "94.00", "95.0", "–"],
        ["SupCon", "95.00", "96.2", "71.00"],
        ["TCL", "97.00", "96.5", "70.50"],
        ["SupCon − Cross-entropy", "+1.00", "+1.2", "–"],
        ["TCL − SupCon", "+2.00", "+0.2", "−0.50"],
    ]
    assert [[cell.text for cell in row if cell.strong] for row in table.rows[:3]] == [[], ["71.00"], ["97.00"]]


def test_cross_entropy_counts_by_its_own_classifier() -> None:
    table = grid("", [runs(ONE["Cross-entropy"], 94.0, classifier=93.0), runs(ONE["TCL"], 97.0)])
    assert texts(table)[0][1] == "93.00"
    assert "Cross-entropy: the classifier trained with the encoder, cross-entropy, last epoch." in table.notes


def test_differences_are_those_of_the_same_seeds() -> None:
    first, second = runs(ONE["SupCon"], 90.0, 80.0, 70.0), runs(ONE["TCL"], 91.0, 81.5, 72.0)
    lonely = Outcome(ONE["TCL"], second.results[:2])
    assert texts(grid("", [first, second]))[-1][1] == "+1.50 ± 1.24"
    assert (first.above(lonely) or pytest.fail("two seeds in common")).num == 2


def test_data_that_is_not_there_is_left_out_and_said_so() -> None:
    gone = [Outcome(row, num_missing=1, absent="other is not on this disk") for row in OTHER.values()]
    outcomes = [runs(ONE["TCL"], 97.0), *gone]
    table = grid("", outcomes)
    assert table.columns == ("method", "one", "paper")
    assert "Left out: other; other is not on this disk." in table.notes
    assert "other" not in words(panels("", outcomes))


def test_what_is_not_there_yet_is_said_in_its_cell() -> None:
    outcomes = [runs(ONE["TCL"], 97.0), Outcome(ONE["SupCon"], num_missing=2)]
    assert texts(grid("", outcomes))[1][1:] == ["not run yet", "96.2"]
    assert "not run yet" in words(panels("", outcomes))


def test_a_panel_for_each_data_set_and_the_papers_marks_hollow() -> None:
    figure = panels("A title", [runs(ONE["SupCon"], 95.0), runs(ONE["TCL"], 97.0), runs(OTHER["TCL"], 70.0, 71.0)])
    assert {"A title", "SupCon", "TCL", "one", "other", "open: the paper", "top-1 accuracy, %"} <= set(words(figure))
    assert len(figure.axes) == 2
    assert hollow(figure) == [96.25, 96.5]
    assert "open: the paper" not in words(panels("", [runs(OTHER["TCL"], 70.0)]))


def test_a_sweep_has_a_line_for_each_value() -> None:
    outcomes = [
        runs(ONE["SupCon"], 95.0),
        runs(ONE["TCL"], 97.0),
        runs(OTHER["SupCon"], 71.0),
        runs(OTHER["TCL"], 70.5),
    ]
    table = sweep_table("setting")("", outcomes)
    assert table.columns == ("setting", "SupCon", "TCL", "TCL − SupCon", "SupCon, paper", "TCL, paper")
    assert texts(table) == [
        ["one", "95.00", "97.00", "+2.00", "96.2", "96.5"],
        ["other", "71.00", "70.50", "−0.50", "–", "–"],
    ]
    figure = sweep_figure("setting")("A title", outcomes)
    assert {"A title", "setting", "one", "other", "open: the paper"} <= set(words(figure))
    joined = [line for line in figure.axes[0].lines if len(line.get_xdata()) == 2 and line.get_alpha() == 0.8]  # type: ignore[arg-type]
    assert len(joined) == 2
    low, high = figure.axes[0].get_ylim()
    assert low < 70.5 < 97.0 < high


def test_nothing_at_all_is_drawn_too() -> None:
    nothing = [Outcome(row, num_missing=1) for row in ONE.values()]
    assert texts(grid("", nothing))[0][1] == "not run yet"
    assert grid("", nothing).notes == ()
    sweep_figure("setting")("", nothing)
    assert "not run yet" in words(panels("", nothing))
