"""How all figures of experiments look: colours that every kind of colour vision tells apart, marks that differ too."""

from math import ceil
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from contune.report.style import BLUE, INK, LINE, MUTED, VERMILLION

STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "contune",
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": INK,
}
WIDTH, TITLE = 8.2, 0.35
"""Inches: of every figure, and of its title's line."""


class Mark(NamedTuple):
    """How a method is drawn."""

    marker: str
    colour: str


CROSS_ENTROPY, SUPCON, TCL = "Cross-entropy", "SupCon", "TCL"
MARKS = {CROSS_ENTROPY: Mark("^", MUTED), SUPCON: Mark("D", VERMILLION), TCL: Mark("o", BLUE)}


def marker_size(marker: str) -> float:
    return 6.5 if marker in "o^" else 5.5


def quiet(axes: Axes, *, grid: str) -> None:
    """No frame, and a grid on one axis."""
    axes.tick_params(length=0, labelcolor=MUTED, pad=4)
    axes.grid(axis=grid, color=LINE, linewidth=0.8)  # type: ignore[arg-type]  # "x", "y" or "both"
    axes.set_axisbelow(True)
    axes.set_facecolor("none")
    for side in axes.spines.values():
        side.set_visible(False)


def title_and_legend(figure: Figure, title: str, handles: list[Line2D], *, rows: int = 1) -> None:
    """On top, flush left; a figure inside a page goes without the title."""
    height = figure.get_figheight()
    columns = ceil(len(handles) / rows)
    down = [handle for column in range(columns) for handle in handles[column::columns]]  # as matplotlib fills them
    middle = (TITLE if title else 0) + 0.24 + 0.11 * (rows - 1)
    figure.text(0.02, 1 - 0.27 / height, title, fontsize=13, fontweight="bold", va="center")
    figure.legend(
        handles=down, loc="center left", bbox_to_anchor=(0.008, 1 - middle / height), ncols=columns,
        frameon=False, labelcolor=MUTED, handletextpad=0.3, columnspacing=1.4, fontsize=9.5,
    )  # fmt: skip


def ours(name: str) -> Line2D:
    """A method's mark in a legend."""
    marker, colour = MARKS[name]
    return Line2D([], [], linestyle="none", marker=marker, markersize=6, color=colour, label=name)


def papers(label: str = "open: the paper") -> Line2D:
    """In a legend: what is hollow is not ours."""
    return Line2D(
        [], [], linestyle="none", marker="s", markersize=6, markerfacecolor="none", color=MUTED, label=label,
        markeredgewidth=1.3,
    )  # fmt: skip


def put(axes: Axes, x: float, y: float, mark: Mark, *, filled: bool = True) -> None:
    axes.plot(
        [x], [y], linestyle="none", marker=mark.marker, markersize=marker_size(mark.marker), color=mark.colour,
        markerfacecolor=mark.colour if filled else "none", markeredgewidth=1.3, zorder=4 if filled else 3,
    )  # fmt: skip


def limits(values: list[float], *, least: float = 0.5) -> tuple[float, float]:
    """All of them, with some air; accuracies where there is none."""
    if not values:
        return 0.0, 100.0
    air = max(least, 0.08 * (max(values) - min(values)))
    return min(values) - air, max(values) + air
