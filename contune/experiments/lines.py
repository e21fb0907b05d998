"""The figure of methods over the values of one setting: a line for each method, the paper's numbers hollow."""

from collections.abc import Callable, Sequence

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from contune.experiments.grid import Grid, by_place, names_of, reported
from contune.experiments.outcome import TOP1, Outcome
from contune.experiments.style import MARKS, STYLE, TITLE, WIDTH, limits, ours, papers, put, quiet, title_and_legend
from contune.report.style import INK, MUTED

PANEL, HEAD, FOOT, LEFT, RIGHT = 2.6, 0.55, 0.6, 0.75, 0.25
"""Inches."""
APART = 0.06
"""Between methods at the same value, as a share of the distance to the next, so that bars do not hide each other."""


def sweep_figure(setting: str, *, joined: bool = True) -> Callable[[str, Sequence[Outcome]], Figure]:
    """`joined`: the values are in an order, so that what lies between them means something."""

    def make(title: str, outcomes: Sequence[Outcome]) -> Figure:
        cells = by_place(outcomes)
        methods, places = names_of(cells, 0), names_of(cells, 1)
        height = FOOT + PANEL + HEAD + (TITLE if title else 0)
        with matplotlib.rc_context(STYLE):
            figure = Figure(figsize=(WIDTH, height), facecolor="white")
            axes = figure.add_axes((LEFT / WIDTH, FOOT / height, 1 - (LEFT + RIGHT) / WIDTH, PANEL / height))
            values = [
                value
                for number, method in enumerate(methods)
                for value in _series(axes, method, _offset(number, len(methods)), cells, places, joined=joined)
            ]
            _dress(axes, setting, places, values)
            with_paper = any(reported(outcome) for outcome in cells.values())
            title_and_legend(figure, title, [*map(ours, methods), *([papers()] if with_paper else [])])
        return figure

    return make


def _offset(number: int, total: int) -> float:
    return APART * (number - (total - 1) / 2)


def _series(axes: Axes, method: str, offset: float, cells: Grid, places: Sequence[str], *, joined: bool) -> list[float]:
    """Draws a method's line; what was drawn, for the limits."""
    mark, values, points = MARKS[method], [], []
    for number, place in enumerate(places):
        outcome = cells.get((method, place))
        if outcome is None:
            continue
        x, spread, paper = number + offset, outcome.accuracy(TOP1), reported(outcome)
        if paper is not None:
            put(axes, number - (0.11 if offset <= 0 else -0.11), paper, mark, filled=False)
            values.append(paper)
        if spread is not None:
            put(axes, x, spread.mean, mark)
            ends = [spread.mean - (spread.half or 0), spread.mean + (spread.half or 0)]
            axes.plot([x, x], ends, color=mark.colour, linewidth=1.8, solid_capstyle="butt", zorder=2)
            values += ends
            points.append((x, spread.mean))
    if joined and len(points) > 1:
        axes.plot(*zip(*points, strict=True), color=mark.colour, linewidth=1.4, alpha=0.8, zorder=1)
    return values


def _dress(axes: Axes, setting: str, places: Sequence[str], values: list[float]) -> None:
    axes.set_xlim(-0.5, len(places) - 0.5)
    axes.set_ylim(*limits(values))
    axes.set_xticks(range(len(places)), places)
    quiet(axes, grid="y")
    axes.tick_params(axis="x", labelcolor=INK)
    axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    axes.set_xlabel(setting, color=MUTED)
    axes.set_ylabel("top-1 accuracy, %", color=MUTED)
