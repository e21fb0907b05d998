"""Names beside the marks of a picture, where they cover neither each other nor another mark."""

from collections.abc import Sequence
from math import dist
from typing import Any, Literal, NamedTuple

from matplotlib.axes import Axes
from matplotlib.text import Annotation
from matplotlib.transforms import Bbox

from contune.report.style import INK

POINTS_PER_INCH = 72
NEAR = 10.0
"""Points between two marks that one name has to do for: they are drawn one on the other."""
FONT_SIZE = 9
AWAY = 11.0
"""Points from the middle of a mark, so that its ring stays free."""


Across = Literal["left", "center", "right"]
Along = Literal["bottom", "center", "top"]


class Spot(NamedTuple):
    """Where a name is, seen from what it names: points to the right and up, and which of its sides is there."""

    right: float
    up: float
    across: Across
    along: Along


_OVER: tuple[tuple[float, Across], ...] = ((0.0, "center"), (3.0, "left"), (-3.0, "right"))
AROUND = (
    Spot(AWAY, 0, "left", "center"),
    Spot(-AWAY, 0, "right", "center"),
    *(Spot(right, up, across, "bottom" if up > 0 else "top") for up in (10, -10, 24, -24) for right, across in _OVER),
)
"""Of a mark, the best first."""
ON_A_LINE = tuple(
    Spot(-4 - left, up, "right", "bottom" if up > 0 else "top") for left in (0, 60, 120, 180, 240) for up in (3, -4)
)
"""Of a line, seen from its right end."""


class Name(NamedTuple):
    text: str
    at: tuple[float, float]
    spots: Sequence[Spot] = AROUND
    coordinates: Any = "data"
    colour: str = INK


def are_near(axes: Axes, one: tuple[float, float], other: tuple[float, float]) -> bool:
    """Whether the marks at these two places are one on the other."""
    pixels = axes.transData.transform([one, other])
    return dist(*pixels) < NEAR * axes.figure.dpi / POINTS_PER_INCH


def write_names(axes: Axes, names: Sequence[Name], marks: Sequence[tuple[float, float]]) -> None:
    """Each name at the first of its spots that is free, one after the other; where none is, at the least bad.

    The figure has been laid out before.
    """
    pixels = [tuple(place) for place in axes.transData.transform(marks)] if marks else []
    taken: list[Bbox] = []
    for name in names:
        words = axes.annotate(
            name.text, name.at, xycoords=name.coordinates, xytext=(0, 0), textcoords="offset points",
            color=name.colour, fontsize=FONT_SIZE, zorder=2, in_layout=False, multialignment="left",
            bbox={"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.8},
        )  # fmt: skip
        boxes = {spot: _moved(words, spot) for spot in name.spots}
        chosen = min(boxes, key=lambda spot: _badness(boxes[spot], axes.bbox, taken, pixels))
        taken.append(_moved(words, chosen))


def _moved(words: Annotation, spot: Spot) -> Bbox:
    words.xyann = (spot.right, spot.up)
    words.set_horizontalalignment(spot.across)
    words.set_verticalalignment(spot.along)
    return words.get_window_extent()


def _badness(box: Bbox, inside: Bbox, taken: Sequence[Bbox], marks: Sequence[tuple[float, ...]]) -> tuple[int, int]:
    """Names that are cut off or covered by others count for more than marks that a name covers."""
    is_out = box.x0 < inside.x0 or box.x1 > inside.x1 or box.y0 < inside.y0 or box.y1 > inside.y1
    room = box.padded(3)
    return is_out + sum(box.overlaps(other) for other in taken), sum(room.contains(*mark) for mark in marks)
