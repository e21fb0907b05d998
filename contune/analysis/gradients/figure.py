"""The drawing of an analysis: responses by similarity, by k1 and by k2; positives left, negatives right."""

from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, MaxNLocator

from contune.analysis.gradients.style import LOSSES, NAMES, STYLE, Dashes, handle, legend, quiet
from contune.console import plural
from contune.report.style import BLUE, MUTED, VERMILLION

KINDS: tuple[tuple[str, Dashes], ...] = (("hard", "-"), ("easy", "--"))


def draw(found: dict[str, Any]) -> Figure:
    """`found` is what gradients.json holds."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(8.2, 10.2), layout=ConstrainedLayoutEngine(h_pad=0.07), facecolor="white")
        axes_42 = figure.subplots(4, 2, height_ratios=(4, 1, 5, 5))
        for column, sign in enumerate(("positive", "negative")):
            curve, pairs, by_k1, by_k2 = axes_42[:, column]
            _by_similarity(curve, found, sign)
            _pairs(pairs, curve, found["by_similarity"][sign], sign)
            _by_knob(by_k1, found, sign, "k1")
            _by_knob(by_k2, found, sign, "k2")
        figure.suptitle(title_of(found), fontsize=11, x=0.02, ha="left", color=MUTED)
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # laid out now, and not again for each file
    return figure


def title_of(found: dict[str, Any]) -> str:
    tcl = found["tcl"]
    return (
        f"{found['method']} on {found['data']}, step {found['step']:,}: "
        f"{plural(found['num_batches'], 'batch', 'es')} of {found['embeddings_per_batch']} embeddings, "
        f"τ = {found['temperature']:g}; "
        f"TCL at k1 = {tcl['k1']:g}, k2 = {tcl['k2']:g}"
    )


def _by_similarity(axes: Axes, found: dict[str, Any], sign: str) -> None:
    curve = found["by_similarity"][sign]
    what = "Pull towards a positive, X − P + Y" if sign == "positive" else "Push from a negative, P"
    quiet(axes, what, "")
    for name, colour, marker, width in LOSSES:
        axes.plot(
            curve["similarity"], curve[name], color=colour, linewidth=width, marker=marker, markersize=2.5 + width / 2
        )
    if sign == "positive":
        axes.axhline(0, color=MUTED, linewidth=0.8)
    axes.margins(y=0.08)
    legend(axes, [handle(colour, "-", marker, NAMES[name]) for name, colour, marker, _ in LOSSES])


def _pairs(axes: Axes, above: Axes, curve: dict[str, Any], sign: str) -> None:
    """How many pairs there are of each similarity, on an axis of their own: they have no place among coefficients."""
    quiet(axes, "", f"similarity of anchor and {sign}")
    axes.grid(visible=False)
    axes.fill_between(curve["similarity"], curve["share"], step="mid", color=MUTED, alpha=0.45, linewidth=0)
    axes.axhline(0, color=MUTED, linewidth=0.8)
    axes.set_ylim(bottom=0)
    axes.set_yticks([])
    axes.set_ylabel("pairs", rotation=0, ha="right", va="center", fontsize=9)
    axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    above.sharex(axes)
    above.tick_params(labelbottom=False)


def _by_knob(axes: Axes, found: dict[str, Any], sign: str, knob: str) -> None:
    """TCL's curves over the knob, SupCon's as the level they start from."""
    lines = found[f"by_{knob}"]
    other = "k2" if knob == "k1" else "k1"
    quiet(axes, f"Mean response from {sign}s", f"{knob}  ({other} = {found['tcl'][other]:g})")
    handles = []
    for kind, dashes in KINDS:
        name = f"{kind}_{sign}_gradient"
        axes.plot([line[knob] for line in lines], [line[name] for line in lines], color=BLUE, linestyle=dashes,
                  linewidth=1.8, marker="o", markersize=3.5)  # fmt: skip
        axes.axhline(found["supcon"][name], color=VERMILLION, linestyle=dashes, linewidth=1.5)
        handles += [handle(BLUE, dashes, "o", f"TCL, {kind}"), handle(VERMILLION, dashes, "", f"SupCon, {kind}")]
    if knob == "k1":
        axes.set_xscale("symlog", linthresh=1.0)
        axes.set_xlim(-0.2, 1.8 * max(1.0, *(line[knob] for line in lines)))
        legend(axes, handles)  # the drawing below has the same lines
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.axvline(found["tcl"][knob], color=MUTED, linewidth=0.8, linestyle=":")
    top = max(axes.dataLim.y1, 0.0) or 1.0
    axes.set_ylim(-0.03 * top, 1.07 * top)  # room for markers at 0 and at the top
