"""How the drawings of an analysis look: quiet axes, TCL and SupCon told apart in three ways."""

from collections.abc import Sequence
from typing import Any, Literal

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

from contune.report.style import BLUE, INK, LINE, MUTED, VERMILLION

STYLE: dict[Any, Any] = {
    "svg.fonttype": "none", "svg.hashsalt": "contune gradients", "font.family": "sans-serif", "font.size": 10,
    "text.color": INK, "axes.labelcolor": MUTED, "path.simplify": False,
    "text.parse_math": False,
}  # fmt: skip
LOSSES = (("supcon", VERMILLION, "D", 3.2), ("tcl", BLUE, "o", 1.5))
"""With their widths: where the two are the same, SupCon's shows on both sides of TCL's."""
NAMES = {"tcl": "TCL", "supcon": "SupCon"}
Dashes = Literal["-", "--"]


def quiet(axes: Axes, title: str, label: str) -> None:
    axes.set_title(title, loc="left", fontsize=10.5, color=INK)
    axes.set_xlabel(label)
    for side in axes.spines.values():
        side.set_visible(False)
    axes.grid(axis="y", color=LINE, linewidth=0.8)
    axes.tick_params(length=0, labelcolor=MUTED, labelsize=9)
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.4g}"))


def handle(colour: str, dashes: Dashes, marker: str, label: str) -> Line2D:
    return Line2D([], [], color=colour, linestyle=dashes, marker=marker, markersize=4, label=label)


def legend(axes: Axes, handles: Sequence[Artist]) -> None:
    axes.legend(handles=handles, frameon=False, fontsize=8.5, labelcolor=INK, loc="best", handlelength=2.2)
