"""The drawing of an analysis anchor by anchor: how responses are spread, and the terms they are made of."""

from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from contune.analysis.gradients.figure import title_of
from contune.analysis.gradients.style import LOSSES, NAMES, STYLE, handle, legend, quiet
from contune.report.style import INK, LINE, MUTED, PAPER

_LOOKS = {loss: (colour, marker) for loss, colour, marker, _ in LOSSES}
_TERMS = (
    ("X_ip", "X_ip: share of a positive", ("tcl",)),
    ("P_ip", "P_ip: nearness of a positive", ("supcon", "tcl")),
    ("Y_ip", "Y_ip: what k1 adds", ("tcl",)),
    ("P_in", "P_in: push of a negative", ("supcon", "tcl")),
)
"""Their columns, what they are called, and the losses that have one of their own; X is the same in both."""
_APART = 0.16
"""Above and below the line of a term that two losses have."""
_DEEPEST = 1e-6
"""Of the highest response: what is lower than that is not worth the room."""
_MARKED = (10, 50, 90)
"""Quantiles at which a curve has a mark."""


def draw_anchors(found: dict[str, Any]) -> Figure:
    """`found` is what gradients.json holds."""
    spread = found["by_anchor"]
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(8.2, 6.4), layout="constrained", facecolor=PAPER)
        [[above], [below]] = figure.subfigures(2, 1, squeeze=False, height_ratios=(1.1, 1))  # each laid out by itself
        for axes, sign in zip(above.subplots(1, 2), ("positive", "negative"), strict=True):
            _sorted(axes, spread, sign)
        _terms(below.subplots(), spread["quantiles"])
        figure.suptitle(title_of(found), fontsize=11, x=0.02, ha="left", color=MUTED)
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # laid out now, and not again for each file
    return figure


def _sorted(axes: Axes, spread: dict[str, Any], sign: str) -> None:
    quiet(axes, f"Response of an anchor from its {sign}s", "% of anchors, the lowest response first")
    handles = []
    for loss, colour, marker, width in LOSSES:
        values = spread["quantiles"][_column(f"{sign}_gradient", loss)]
        percents = [100 * share for share in spread["share"]][: len(values)]
        axes.plot(percents, values, color=colour, linewidth=width, marker=marker, markersize=4 + width / 2,
                  markevery=[place for place in _MARKED if values])  # fmt: skip
        handles.append(handle(colour, "-", marker, NAMES[loss]))
    lowest = [spread["quantiles"][_column(f"{sign}_gradient", loss)][1:2] for loss in NAMES]
    if all(values and values[0] > 0 for values in lowest):  # a few anchors have a hundred times what most have
        axes.set_yscale("log")
        axes.set_ylim(bottom=max(axes.get_ylim()[0], _DEEPEST * axes.get_ylim()[1]))
        _decades(axes.yaxis, axes.get_ylim())
    legend(axes, handles)


def _terms(axes: Axes, quantiles: dict[str, list[float]]) -> None:
    """A row for each term: the median anchor, half of the anchors, nine in ten."""
    quiet(axes, "Terms of lemmas 1 and 2, each the mean over an anchor’s pairs", "")
    axes.grid(visible=False, axis="y")
    axes.grid(axis="x", color=LINE, linewidth=0.8)
    drawn = [_term(axes, row, name, losses, quantiles) for row, (name, _, losses) in enumerate(_TERMS)]
    axes.set_yticks(range(len(_TERMS)), [title for _, title, _ in _TERMS], color=INK, fontsize=9.5)
    axes.set_ylim(len(_TERMS) - 0.5, -0.5)
    if any(drawn):
        axes.set_xscale("log")
        _decades(axes.xaxis, axes.get_xlim())
    axes.set_xlabel("line: nine anchors in ten; bar: half of them; mark: the median")


def _term(axes: Axes, row: int, name: str, losses: tuple[str, ...], quantiles: dict[str, list[float]]) -> bool:
    """Whether there was anything to draw: on a logarithmic axis 0, Y's value at k1 = 0, has no place."""
    any_drawn = False
    for number, loss in enumerate(losses):
        values = quantiles[_column(name, loss)]
        place = row + (2 * number - 1) * _APART * (len(losses) > 1)
        colour, marker = _LOOKS[loss] if name != "X_ip" else (MUTED, "s")
        if not values or values[5] <= 0:
            axes.text(0.01, place, f"{NAMES[loss]}: 0", transform=axes.get_yaxis_transform(), va="center", color=colour)
            continue
        axes.plot([values[5], values[95]], [place, place], color=colour, linewidth=1.2, solid_capstyle="butt")
        axes.plot([values[25], values[75]], [place, place], color=colour, linewidth=5, solid_capstyle="butt")
        axes.plot([values[50]], [place], color=colour, marker=marker, markersize=7, markeredgecolor=PAPER)
        who = "both" if name == "X_ip" else NAMES[loss]
        axes.annotate(f"{who} {values[50]:.3g}", (values[95], place), xytext=(6, 0), textcoords="offset points",
                      va="center", fontsize=8.5, color=colour)  # fmt: skip
        any_drawn = True
    return any_drawn


def _decades(axis: Axis, limits: tuple[float, float]) -> None:
    """Few numbers, as people write them."""
    axis.set_major_locator(LogLocator(subs=(1.0,) if limits[1] > 300 * limits[0] else (1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(NullLocator())


def _column(name: str, loss: str) -> str:
    return f"supcon_{name}" if loss == "supcon" else name
