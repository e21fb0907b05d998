"""What the figures of k1 and k2 share: panels, and gradients over training in them."""

from typing import Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from contune.experiments.curve import curve
from contune.experiments.outcome import Outcome
from contune.experiments.style import TITLE, WIDTH, quiet
from contune.report.style import INK, MUTED

PANEL, HEAD, FOOT = 2.7, 0.55, 0.6
"""Inches: the height of a panel, of the legend above, and of what is below."""
PANEL_TITLE = 0.3
LEFT, RIGHT = (0.095, 0.385), (0.592, 0.388)
"""Where the panels begin and how wide they are, in widths of the figure."""
Dashes = Literal["-"] | tuple[float, tuple[float, ...]]
SOLID: Dashes = "-"
DASHED: Dashes = (0.0, (4.0, 2.0))
DOTTED: Dashes = (0.0, (1.0, 1.5))
NO_CURVES = "these results have no curves"


def two_panels(title: str, *, head: float = HEAD, below: float = 0.0) -> tuple[Figure, Axes, Axes]:
    """Beside each other, with `below` inches left free under them."""
    height = below + FOOT + PANEL + PANEL_TITLE + head + (TITLE if title else 0)
    figure = Figure(figsize=(WIDTH, height), facecolor="white")
    bottom = (below + FOOT) / height
    left, right = (figure.add_axes((x, bottom, width, PANEL / height)) for x, width in (LEFT, RIGHT))
    return figure, left, right


def draw(axes: Axes, outcome: Outcome, key: str, *, colour: str, dashes: Dashes = SOLID) -> None:
    found = curve(outcome, key)
    if found is not None:
        axes.plot(found.epochs, found.values, linewidth=1.8, color=colour, linestyle=dashes)


def head_panel(axes: Axes, title: str) -> None:
    axes.set_title(title, loc="left", fontsize=10, color=INK)


def dress_curves(axes: Axes, label: str, *, from_zero: bool = True) -> None:
    quiet(axes, grid="y")
    axes.set_xlabel("epoch", color=MUTED)
    axes.set_ylabel(label, color=MUTED)
    axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_locator(MaxNLocator(5))
    if not axes.lines:
        axes.text(0.5, 0.5, NO_CURVES, transform=axes.transAxes, color=MUTED, ha="center")
    elif from_zero:
        axes.set_ylim(0, axes.get_ylim()[1])


def line(label: str, colour: str, marker: str | None = None, *, dashes: Dashes = SOLID) -> Line2D:
    """In a legend."""
    return Line2D([], [], color=colour, marker=marker, markersize=6, linestyle=dashes, linewidth=1.8, label=label)
