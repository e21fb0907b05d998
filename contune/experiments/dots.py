"""The figure of runs side by side: a line for each, a mark for each accuracy, a bar for its interval."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from contune.experiments.outcome import Outcome
from contune.experiments.style import STYLE, TITLE, WIDTH, marker_size, quiet, title_and_legend
from contune.report.style import BLUE, INK, LINE, MUTED, VERMILLION

ROW_HEIGHT, HEAD, FOOT = 0.36, 0.7, 0.55
"""Inches; the head is the legend and the names of columns."""
NUMBERS = (1.095, 1.215)
"""Where the two columns of numbers end, in widths of the panel."""


class Mark(NamedTuple):
    label: str
    marker: str
    colour: str
    offset: float
    """Above the middle of the line, as a share of its height, so that marks of a line do not hide each other."""
    filled: bool = True
    measure: str = ""


LINEAR_MARK = Mark("linear probe", "o", BLUE, 0.16, measure="linear")
KNN_MARK = Mark("kNN", "D", VERMILLION, -0.16, measure="knn")
_OTHERS = (("s", 0.16), ("^", -0.16))
"""Marks of what others report, of whom there are two at most, and their offsets."""


def dots(title: str, outcomes: Sequence[Outcome]) -> Figure:
    """The best linear accuracy on top, baselines below a line; what others report as grey marks."""
    methods = _ranked([each for each in outcomes if not each.row.is_baseline])
    baselines = _ranked([each for each in outcomes if each.row.is_baseline])
    lines = [*methods, *baselines]
    whose = list(dict.fromkeys(name for each in lines for name in each.row.beside))
    others = [
        Mark(name, marker, MUTED, offset, filled=False) for name, (marker, offset) in zip(whose, _OTHERS, strict=False)
    ]
    height = FOOT + ROW_HEIGHT * len(lines) + HEAD + (TITLE if title else 0)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, height), facecolor="white")
        axes = figure.add_axes((0.25, FOOT / height, 0.6, ROW_HEIGHT * len(lines) / height))
        _dress(axes, lines)
        for place, outcome in enumerate(lines):
            _line(axes, -place, outcome, others)
        for outcome in baselines:
            _reference_line(axes, outcome)
        if methods and baselines:
            axes.axhline(0.5 - len(methods), color=MUTED, linewidth=0.8)
        _head(figure, axes, title, [LINEAR_MARK, KNN_MARK, *others])
    return figure


def _ranked(outcomes: list[Outcome]) -> list[Outcome]:
    def height(outcome: Outcome) -> float:
        spread = outcome.accuracy("linear") or outcome.accuracy("knn")
        return spread.mean if spread is not None else float("-inf")

    return sorted(outcomes, key=height, reverse=True)


def _line(axes: Axes, y: float, outcome: Outcome, others: Sequence[Mark]) -> None:
    for mark in others:
        if mark.label in outcome.row.beside:
            _put(axes, outcome.row.beside[mark.label], y + mark.offset, mark)
    for mark, x in ((LINEAR_MARK, NUMBERS[0]), (KNN_MARK, NUMBERS[1])):
        spread = outcome.accuracy(mark.measure)
        if spread is None:
            continue
        axes.text(x, y, f"{spread.mean:.1f}", transform=axes.get_yaxis_transform(), color=mark.colour, ha="right",
                  va="center_baseline")  # fmt: skip
        if outcome.collapsed():
            continue  # far to the left of all that is of interest
        if spread.half is not None:
            ends = (spread.mean - spread.half, spread.mean + spread.half)
            axes.plot(ends, (y + mark.offset,) * 2, color=mark.colour, linewidth=1.8, solid_capstyle="butt", zorder=2)
        _put(axes, spread.mean, y + mark.offset, mark)


def _put(axes: Axes, x: float, y: float, mark: Mark) -> None:
    axes.plot(
        [x], [y], linestyle="none", marker=mark.marker, markersize=marker_size(mark.marker), color=mark.colour,
        markerfacecolor=mark.colour if mark.filled else "none", markeredgewidth=1.3, zorder=3,
    )  # fmt: skip


def _reference_line(axes: Axes, baseline: Outcome) -> None:
    """Its linear accuracy, through all lines above it."""
    spread = baseline.accuracy("linear")
    if spread is not None:
        axes.axvline(spread.mean, color=BLUE, linewidth=1.0, linestyle=(0, (2, 3)), zorder=1)


def _dress(axes: Axes, lines: Sequence[Outcome]) -> None:
    for place, outcome in enumerate(lines):
        axes.axhline(-place, color=LINE, linewidth=0.8, zorder=0)
        _name(axes, -place, outcome)
    axes.set_ylim(0.6 - len(lines), 0.6)
    axes.set_xlim(*_limits(lines))
    axes.set_yticks([])
    axes.set_xlabel("top-1 accuracy, %", color=MUTED)
    quiet(axes, grid="x")


def _name(axes: Axes, y: float, outcome: Outcome) -> None:
    remark = outcome.remark()
    place: dict[str, Any] = {"transform": axes.get_yaxis_transform(), "ha": "right", "va": "center_baseline"}
    axes.text(-0.02, y + (0.14 if remark else 0.0), outcome.row.title, color=INK, **place)
    axes.text(-0.02, y - 0.24, remark, color=MUTED, fontsize=8, **place)


def _limits(lines: Sequence[Outcome]) -> tuple[float, float]:
    """All that is drawn, with some air."""
    values = [value for each in lines for value in each.row.beside.values()]
    for outcome in lines:
        for spread in (outcome.accuracy(mark.measure) for mark in (LINEAR_MARK, KNN_MARK)):
            if spread is not None and not outcome.collapsed():
                values += [spread.mean - (spread.half or 0), spread.mean + (spread.half or 0)]
    if not values:
        return 0.0, 100.0
    air = max(0.5, 0.04 * (max(values) - min(values)))
    return min(values) - air, max(values) + air


def _head(figure: Figure, axes: Axes, title: str, marks: Sequence[Mark]) -> None:
    for mark, x, heading in ((LINEAR_MARK, NUMBERS[0], "linear"), (KNN_MARK, NUMBERS[1], "kNN")):
        axes.text(x, 0.95, heading, transform=axes.get_yaxis_transform(), color=mark.colour, ha="right", fontsize=9)
    handles = [
        Line2D([], [], linestyle="none", marker=mark.marker, markersize=6, color=mark.colour, label=mark.label,
               markerfacecolor=mark.colour if mark.filled else "none", markeredgewidth=1.3)
        for mark in marks
    ]  # fmt: skip
    title_and_legend(figure, title, handles)
