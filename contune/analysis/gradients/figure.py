"""The drawing of an analysis: responses by similarity, by k1 and by k2; positives left, negatives right."""

from typing import Any

import matplotlib
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from contune.analysis.colours import BLUE, LINE, MUTED, ORANGE
from contune.analysis.gradients.style import LOSSES, NAMES, STYLE, Dashes, handle, legend, quiet
from contune.analysis.wording import plural

KINDS: tuple[tuple[str, Dashes], ...] = (("hard", "-"), ("easy", "--"))


def draw(found: dict[str, Any]) -> Figure:
    """`found` is what gradients.json holds."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(8.2, 9.6), layout="constrained", facecolor="white")
        axes_32 = figure.subplots(3, 2)
        for column, sign in enumerate(("positive", "negative")):
            _by_similarity(axes_32[0][column], found, sign)
            for row, knob in ((1, "k1"), (2, "k2")):
                _by_knob(axes_32[row][column], found, sign, knob)
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
    quiet(axes, what, f"similarity of anchor and {sign}")
    pairs = axes.twinx()
    pairs.fill_between(curve["similarity"], curve["share"], step="mid", color=LINE, linewidth=0)
    pairs.set_ylim(bottom=0)
    pairs.set_axis_off()
    axes.set_zorder(pairs.get_zorder() + 1)
    axes.set_facecolor("none")
    for name, colour, marker, width in LOSSES:
        axes.plot(
            curve["similarity"], curve[name], color=colour, linewidth=width, marker=marker, markersize=2.5 + width / 2
        )
    if sign == "positive":
        axes.axhline(0, color=MUTED, linewidth=0.8)
    handles: list[Artist] = [handle(colour, "-", marker, NAMES[name]) for name, colour, marker, _ in LOSSES]
    handles.append(Patch(facecolor=LINE, edgecolor=MUTED, linewidth=0.6, label="how many pairs"))
    legend(axes, handles)
    axes.xaxis.set_major_locator(MaxNLocator(5))


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
        axes.axhline(found["supcon"][name], color=ORANGE, linestyle=dashes, linewidth=1.5)
        handles += [handle(BLUE, dashes, "o", f"TCL, {kind}"), handle(ORANGE, dashes, "", f"SupCon, {kind}")]
    if knob == "k1":
        axes.set_xscale("symlog", linthresh=1.0)
        axes.set_xlim(-0.2, 1.8 * max(1.0, *(line[knob] for line in lines)))
        legend(axes, handles)  # the drawing below has the same lines
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.axvline(found["tcl"][knob], color=MUTED, linewidth=0.8, linestyle=":")
    axes.set_ylim(bottom=0)
