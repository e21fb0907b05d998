"""The paper's figure of k1: gradients from positives over training for several values, and accuracy over k1."""

from collections.abc import Sequence
from math import nan

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from contune.experiments.curve import curve
from contune.experiments.grid import reported
from contune.experiments.outcome import TOP1, Outcome
from contune.experiments.response_panels import (
    DASHED,
    FOOT,
    HEAD,
    LEFT,
    PANEL_TITLE,
    RIGHT,
    draw,
    dress_curves,
    head_panel,
    line,
    two_panels,
)
from contune.experiments.responses import POSITIVE
from contune.experiments.style import STYLE, SUPCON, TCL, Mark, limits, papers, put, quiet, title_and_legend
from contune.report.style import INK, LINE, MUTED

ACCURACY = 2.0
"""Inches: the height of the panel below."""
AIR = 1.3
"""About the values of k1, as a factor."""
LEGEND_ROW, MOST_IN_A_ROW = 0.22, 7


def k1_figure(title: str, outcomes: Sequence[Outcome]) -> Figure:
    """The mean gradient from positives over training for each k1, what of it is k1's own doing, and accuracy over k1.

    Runs with other values are in other states of training, so the second panel has each beside SupCon's on the same
    batches.
    """
    planned = [each for each in outcomes if each.row.series == TCL]
    tuned = [each for each in planned if each.results] or planned
    supcon = [each for each in outcomes if each.row.series == SUPCON]
    handles = [
        *(line(_label(number, each), _ramp(number, len(tuned)), "o") for number, each in enumerate(tuned)),
        line(SUPCON, INK, dashes=DASHED),
        *([papers()] if any(reported(each) for each in tuned) else []),
    ]
    rows = 1 if len(handles) <= MOST_IN_A_ROW else 2
    below = ACCURACY + FOOT + PANEL_TITLE
    with matplotlib.rc_context(STYLE):
        figure, left, right = two_panels(title, head=HEAD + LEGEND_ROW * (rows - 1), below=below)
        height = figure.get_figheight()
        accuracy = figure.add_axes((LEFT[0], FOOT / height, RIGHT[0] + RIGHT[1] - LEFT[0], ACCURACY / height))
        for number, outcome in enumerate(tuned):
            draw(left, outcome, POSITIVE, colour=_ramp(number, len(tuned)))
            _draw_share(right, outcome, _ramp(number, len(tuned)))
        for outcome in supcon:
            draw(left, outcome, POSITIVE, colour=INK, dashes=DASHED)
        dress_curves(left, "mean gradient from positives")
        dress_curves(right, f"more than {SUPCON}'s, %", from_zero=False)
        right.axhline(0, color=INK, linewidth=1.4, linestyle=DASHED, zorder=1)
        head_panel(left, "in each run")
        head_panel(right, "the same, on the same batches")
        _accuracies(accuracy, tuned, supcon)
        title_and_legend(figure, title, handles, rows=rows)
    return figure


def _label(number: int, outcome: Outcome) -> str:
    value = f"{float(outcome.row.at):,.0f}"
    return value if number else f"{TCL}, k1 = {value}"


def _ramp(number: int, total: int) -> str:
    """From violet to amber, growing in lightness; neither end is lost on white or on a dark page."""
    share = 0.34 + 0.5 * number / max(1, total - 1)
    return matplotlib.colors.to_hex(matplotlib.colormaps["plasma"](share))


def _draw_share(axes: Axes, outcome: Outcome, colour: str) -> None:
    own, beside = curve(outcome, POSITIVE), curve(outcome, f"supcon_{POSITIVE}")
    if own is not None and beside is not None:
        pairs = zip(own.values, beside.values, strict=True)
        more = [100 * (mine / theirs - 1) if theirs else nan for mine, theirs in pairs]
        axes.plot(own.epochs, more, linewidth=1.8, color=colour)


def _accuracies(axes: Axes, tuned: Sequence[Outcome], supcon: Sequence[Outcome]) -> None:
    values, points = [], []
    for number, outcome in enumerate(tuned):
        k1, spread, paper = float(outcome.row.at), outcome.accuracy(TOP1), reported(outcome)
        if paper is not None:
            put(axes, k1, paper, Mark("s", MUTED), filled=False)
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
            half = spread.half or 0
            axes.axhspan(spread.mean - half, spread.mean + half, color=LINE, zorder=0)
            axes.axhline(spread.mean, color=INK, linewidth=1.4, linestyle=DASHED, zorder=1)
            values += [spread.mean - half, spread.mean + half]
    quiet(axes, grid="y")
    axes.set_xscale("log")
    axes.minorticks_off()
    places = [float(outcome.row.at) for outcome in tuned]
    axes.set_xticks(places, [f"{place:,.0f}" for place in places])
    axes.set_xlim(places[0] / AIR, places[-1] * AIR)
    axes.set_ylim(*limits(values))
    axes.set_xlabel("k1", color=MUTED)
    axes.set_ylabel("top-1 accuracy, %", color=MUTED)
