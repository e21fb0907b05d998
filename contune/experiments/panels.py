"""The figure of methods by data sets: a panel for each set, a line for each method, the paper's numbers hollow."""

from collections.abc import Sequence

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from contune.experiments.grid import Grid, by_place, names_of, reported
from contune.experiments.outcome import TOP1, Outcome
from contune.experiments.style import MARKS, STYLE, TITLE, WIDTH, limits, ours, papers, put, quiet, title_and_legend
from contune.report.style import INK, LINE, MUTED

ROW_HEIGHT, HEAD, FOOT, LEFT, RIGHT, GAP = 0.42, 0.75, 0.6, 1.15, 0.2, 0.3
"""Inches."""
APART = 0.17
"""Ours above a method's line and the paper's below it, as they often are on the same spot; in heights of a row."""


def panels(title: str, outcomes: Sequence[Outcome]) -> Figure:
    cells = by_place(outcomes)
    methods, places = names_of(cells, 0), names_of(cells, 1)
    height = FOOT + ROW_HEIGHT * len(methods) + HEAD + (TITLE if title else 0)
    width = (WIDTH - LEFT - RIGHT - GAP * (len(places) - 1)) / max(1, len(places))
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, height), facecolor="white")
        for number, place in enumerate(places):
            left = LEFT + number * (width + GAP)
            axes = figure.add_axes(
                (left / WIDTH, FOOT / height, width / WIDTH, ROW_HEIGHT * len(methods) / height),
            )
            _panel(axes, place, methods, cells, named=number == 0)
        with_paper = any(reported(outcome) for outcome in cells.values())
        title_and_legend(figure, title, [*map(ours, methods), *([papers()] if with_paper else [])])
        figure.text(LEFT / WIDTH, 0.12 / height, "top-1 accuracy, %", color=MUTED)
    return figure


def _panel(axes: Axes, place: str, methods: Sequence[str], cells: Grid, *, named: bool) -> None:
    values: list[float] = []
    for number, method in enumerate(methods):
        axes.axhline(-number, color=LINE, linewidth=0.8, zorder=0)
        if named:
            axes.annotate(
                method, (0, -number), (-8, 0), xycoords=axes.get_yaxis_transform(), textcoords="offset points",
                color=INK, ha="right", va="center",
            )  # fmt: skip
        if (method, place) in cells:
            values += _marks(axes, -number, method, cells[method, place])
    axes.set_xlim(*limits(values))
    axes.set_ylim(0.55 - len(methods), 0.55)
    axes.set_yticks([])
    axes.set_title(place, loc="left", fontsize=10, color=INK)
    axes.xaxis.set_major_locator(MaxNLocator(3, steps=[1, 2, 5, 10]))
    quiet(axes, grid="x")


def _marks(axes: Axes, y: float, method: str, outcome: Outcome) -> list[float]:
    """What was drawn, for the limits."""
    mark, values = MARKS[method], []
    spread, paper = outcome.accuracy(TOP1), reported(outcome)
    if paper is not None:
        put(axes, paper, y - APART, mark, filled=False)
        values.append(paper)
    above = y + (APART if paper is not None else 0)
    if spread is None:
        place = axes.get_yaxis_transform()
        axes.text(0.5, above, outcome.remark(), transform=place, color=MUTED, fontsize=8, ha="center", va="center")
        return values
    put(axes, spread.mean, above, mark)
    ends = [spread.mean - (spread.half or 0), spread.mean + (spread.half or 0)]
    axes.plot(ends, [above] * 2, color=mark.colour, linewidth=1.8, solid_capstyle="butt", zorder=2)
    return [*values, *ends]
