"""The drawing of an analysis: responses by similarity, by k1 and by k2; positives left, negatives right."""

from typing import Any, Literal

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

INK, MUTED, LINE, BLUE, ORANGE = "#22252b", "#676d78", "#e4e2dc", "#2f6f8f", "#c8551b"
PAGE_COLOURS = {
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    LINE: "var(--line)",
    BLUE: "var(--accent)",
    ORANGE: "var(--warm)",
}
"""In a page, which has a dark form. TCL and SupCon differ in lightness and in their marks too."""
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none", "svg.hashsalt": "contune gradients", "font.family": "sans-serif", "font.size": 10,
    "text.color": INK, "axes.labelcolor": MUTED, "path.simplify": False,
}  # fmt: skip
LOSSES = (("supcon", ORANGE, "D", 3.2), ("tcl", BLUE, "o", 1.5))
"""With their widths: where the two are the same, SupCon's shows on both sides of TCL's."""
Dashes = Literal["-", "--"]
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
        figure.suptitle(_title(found), fontsize=11, x=0.02, ha="left", color=MUTED)
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # laid out now, and not again for each file
    return figure


def _title(found: dict[str, Any]) -> str:
    tcl = found["tcl"]
    return (
        f"{found['method']} on {found['data']}, step {found['step']:,}: {found['num_batches']} batches of "
        f"{found['embeddings_per_batch']} embeddings, τ = {found['temperature']:g}; "
        f"TCL at k1 = {tcl['k1']:g}, k2 = {tcl['k2']:g}"
    )


def _by_similarity(axes: Axes, found: dict[str, Any], sign: str) -> None:
    curve = found["by_similarity"][sign]
    what = "Pull towards a positive, X − P + Y" if sign == "positive" else "Push from a negative, P"
    _quiet(axes, what, f"similarity of anchor and {sign}")
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
    handles = [_line(colour, "-", marker, _name(name)) for name, colour, marker, _ in LOSSES]
    handles.append(Line2D([], [], color=LINE, linewidth=6, label="how many pairs"))
    _legend(axes, handles)


def _by_knob(axes: Axes, found: dict[str, Any], sign: str, knob: str) -> None:
    """TCL's curves over the knob, SupCon's as the level they start from."""
    lines = found[f"by_{knob}"]
    other = "k2" if knob == "k1" else "k1"
    _quiet(axes, f"Mean response from {sign}s", f"{knob}  ({other} = {found['tcl'][other]:g})")
    handles = []
    for kind, dashes in KINDS:
        name = f"{kind}_{sign}_gradient"
        axes.plot([line[knob] for line in lines], [line[name] for line in lines], color=BLUE, linestyle=dashes,
                  linewidth=1.8, marker="o", markersize=3.5)  # fmt: skip
        axes.axhline(found["supcon"][name], color=ORANGE, linestyle=dashes, linewidth=1.5)
        handles += [_line(BLUE, dashes, "o", f"TCL, {kind}"), _line(ORANGE, dashes, "", f"SupCon, {kind}")]
    if knob == "k1":
        axes.set_xscale("symlog", linthresh=1.0)
        axes.set_xlim(-0.2, 1.8 * max(1.0, *(line[knob] for line in lines)))
        _legend(axes, handles)  # the drawing below has the same lines
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.axvline(found["tcl"][knob], color=MUTED, linewidth=0.8, linestyle=":")
    axes.set_ylim(bottom=0)


def _quiet(axes: Axes, title: str, label: str) -> None:
    axes.set_title(title, loc="left", fontsize=10.5, color=INK)
    axes.set_xlabel(label)
    for side in axes.spines.values():
        side.set_visible(False)
    axes.grid(axis="y", color=LINE, linewidth=0.8)
    axes.tick_params(length=0, labelcolor=MUTED, labelsize=9)
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.4g}"))


def _line(colour: str, dashes: Dashes, marker: str, label: str) -> Line2D:
    return Line2D([], [], color=colour, linestyle=dashes, marker=marker, markersize=4, label=label)


def _legend(axes: Axes, handles: list[Line2D]) -> None:
    axes.legend(handles=handles, frameon=False, fontsize=8.5, labelcolor=INK, loc="best", handlelength=2.2)


def _name(loss: str) -> str:
    return {"tcl": "TCL", "supcon": "SupCon"}[loss]
