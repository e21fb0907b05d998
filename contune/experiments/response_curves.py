"""The paper's figure of k1 and k2: gradients over training for several settings, and accuracy over k1."""

from collections.abc import Sequence
from typing import Literal

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

from contune.experiments.curve import curve
from contune.experiments.grid import reported
from contune.experiments.outcome import TOP1, Outcome
from contune.experiments.responses import NEGATIVE, POSITIVE
from contune.experiments.style import (
    BLUE,
    INK,
    MUTED,
    ORANGE,
    STYLE,
    SUPCON,
    TCL,
    TITLE,
    WIDTH,
    Mark,
    limits,
    papers,
    put,
    quiet,
    title_and_legend,
)

PANEL, HEAD, FOOT = 2.7, 0.55, 0.6
PANEL_TITLE = 0.25
LEFT, RIGHT = (0.085, 0.395), (0.585, 0.395)
"""Where the panels begin and how wide they are, in widths of the figure."""
Dashes = Literal["-"] | tuple[float, tuple[float, ...]]
SOLID: Dashes = "-"
DASHED: Dashes = (0.0, (4.0, 2.0))
DOTTED: Dashes = (0.0, (1.0, 1.5))
NO_CURVES = "these results have no curves"


def k1_figure(title: str, outcomes: Sequence[Outcome]) -> Figure:
    """Left, the mean gradient from positives over training for each k1; right, accuracy over k1."""
    tuned = [each for each in outcomes if each.row.series == TCL]
    supcon = [each for each in outcomes if each.row.series == SUPCON]
    with matplotlib.rc_context(STYLE):
        figure, left, right = _two_panels(title)
        handles = []
        for number, outcome in enumerate(tuned):
            colour, value = _ramp(number, len(tuned)), f"{float(outcome.row.at):,.0f}"
            _draw(left, outcome, POSITIVE, colour=colour)
            handles.append(_line(value if number else f"{TCL}, k1 = {value}", colour, "o"))
        for outcome in supcon:
            _draw(left, outcome, POSITIVE, colour=INK, dashes=DASHED)
        _dress_curves(left, "mean gradient from positives")
        _accuracies(right, tuned, supcon)
        handles.append(_line(SUPCON, INK, dashes=DASHED))
        handles += [papers()] if any(reported(each) for each in tuned) else []
        title_and_legend(figure, title, handles)
    return figure


def k2_figure(title: str, outcomes: Sequence[Outcome]) -> Figure:
    """A panel for each k2: the mean gradient from negatives of TCL, of SupCon's run, and SupCon's on TCL's batches."""
    tuned = [each for each in outcomes if each.row.series == TCL]
    supcon = [each for each in outcomes if each.row.series == SUPCON]
    with matplotlib.rc_context(STYLE):
        figure, *panels = _two_panels(title, above=PANEL_TITLE)
        for axes, outcome in zip(panels, tuned, strict=True):
            _draw(axes, outcome, NEGATIVE, colour=BLUE)
            for other in supcon:
                _draw(axes, other, NEGATIVE, colour=ORANGE, dashes=DASHED)
            _draw(axes, outcome, f"supcon_{NEGATIVE}", colour=MUTED, dashes=DOTTED)
            _dress_curves(axes, "mean gradient from negatives")
            axes.set_title(outcome.row.title, loc="left", fontsize=10, color=INK)
        top = max(axes.get_ylim()[1] for axes in panels)
        for axes in panels:
            axes.set_ylim(0, top)
        handles = [
            _line(TCL, BLUE),
            _line(f"{SUPCON}, its own run", ORANGE, dashes=DASHED),
            _line(f"{SUPCON}'s formula on the batches of TCL's run", MUTED, dashes=DOTTED),
        ]
        title_and_legend(figure, title, handles)
    return figure


def _two_panels(title: str, *, above: float = 0.0) -> tuple[Figure, Axes, Axes]:
    height = FOOT + PANEL + above + HEAD + (TITLE if title else 0)
    figure = Figure(figsize=(WIDTH, height), facecolor="white")
    left, right = (figure.add_axes((x, FOOT / height, width, PANEL / height)) for x, width in (LEFT, RIGHT))
    return figure, left, right


def _ramp(number: int, total: int) -> str:
    """From violet to amber, growing in lightness; neither end is lost on white or on a dark page."""
    share = 0.34 + 0.5 * number / max(1, total - 1)
    return matplotlib.colors.to_hex(matplotlib.colormaps["plasma"](share))


def _draw(axes: Axes, outcome: Outcome, key: str, *, colour: str, dashes: Dashes = SOLID) -> None:
    found = curve(outcome, key)
    if found is not None:
        axes.plot(found.epochs, found.values, linewidth=1.8, color=colour, linestyle=dashes)


def _dress_curves(axes: Axes, label: str) -> None:
    quiet(axes, grid="y")
    axes.set_xlabel("epoch", color=MUTED)
    axes.set_ylabel(label, color=MUTED)
    axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_locator(MaxNLocator(5))
    if not axes.lines:
        axes.text(0.5, 0.5, NO_CURVES, transform=axes.transAxes, color=MUTED, ha="center")
    else:
        axes.set_ylim(0, axes.get_ylim()[1])


def _accuracies(axes: Axes, tuned: Sequence[Outcome], supcon: Sequence[Outcome]) -> None:
    values, points = [], []
    for number, outcome in enumerate(tuned):
        k1, spread, paper = float(outcome.row.at), outcome.accuracy(TOP1), reported(outcome)
        if paper is not None:
            put(axes, 1.25 * k1, paper, Mark("s", MUTED), filled=False)  # beside ours, not under it
            values.append(paper)
        if spread is not None:
            colour = _ramp(number, len(tuned))
            ends = [spread.mean - (spread.half or 0), spread.mean + (spread.half or 0)]
            axes.plot([k1, k1], ends, color=colour, linewidth=1.8, solid_capstyle="butt")
            put(axes, k1, spread.mean, Mark("o", colour))
            points.append((k1, spread.mean))
            values += ends
    if len(points) > 1:
        axes.plot(*zip(*points, strict=True), color=MUTED, linewidth=1.2, zorder=1)
    for outcome in supcon:
        if (spread := outcome.accuracy(TOP1)) is not None:
            axes.axhline(spread.mean, color=INK, linewidth=1.4, linestyle=DASHED, zorder=1)
            values.append(spread.mean)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.minorticks_off()
    axes.set_ylim(*limits(values))
    quiet(axes, grid="y")
    axes.set_xlabel("k1", color=MUTED)
    axes.set_ylabel("top-1 accuracy, %", color=MUTED)


def _line(label: str, colour: str, marker: str | None = None, *, dashes: Dashes = SOLID) -> Line2D:
    return Line2D([], [], color=colour, marker=marker, markersize=6, linestyle=dashes, linewidth=1.8, label=label)
