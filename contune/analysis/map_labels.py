"""Where the names of classes stand on a map: whole, inside the drawing, and off each other."""

from collections.abc import Sequence
from typing import NamedTuple
from unicodedata import east_asian_width

FONT_SIZE = 26
"""The largest that report.css gives them; what fits in it fits in smaller type."""
LINE_HEIGHT = 1.15 * FONT_SIZE
EDGE = 8
_MOST_LINES_OFF = 4


class Label(NamedTuple):
    """A text by the middle of its base line, or by one end of it at an edge of the drawing."""

    text: str
    x: float
    y: float
    side: str
    """left, right: the edge it stands at; middle."""

    @property
    def ends(self) -> tuple[float, float]:
        width = text_width(self.text)
        left = {"left": self.x, "right": self.x - width}.get(self.side, self.x - width / 2)
        return left, left + width


def text_width(text: str) -> float:
    """Rather too wide than too narrow: whose fonts a page meets is not known."""
    return FONT_SIZE * sum(1.0 if east_asian_width(letter) in "WF" or letter.isupper() else 0.68 for letter in text)


def place_labels(texts: Sequence[str], points: Sequence[tuple[float, float]], width: int, height: int) -> list[Label]:
    """Each text on its point, or as few lines above or below it as keep it off those placed before."""
    placed: list[Label] = []
    for text, (x, y) in zip(texts, points, strict=True):
        label = _beside_edges(text, x, y + FONT_SIZE / 4, width)
        heights = [label.y + lines * LINE_HEIGHT for lines in _lines_off() if _fits(label.y, lines, height)]
        free = (moved for y in heights if not _any_hit(moved := label._replace(y=y), placed))
        placed.append(next(free, label._replace(y=min(max(label.y, LINE_HEIGHT), height - EDGE))))
    return placed


def _beside_edges(text: str, x: float, y: float, width: int) -> Label:
    half = text_width(text) / 2
    if x - half < EDGE:
        return Label(text, EDGE, y, "left")
    if x + half > width - EDGE:
        return Label(text, width - EDGE, y, "right")
    return Label(text, x, y, "middle")


def _lines_off() -> list[int]:
    """0, 1, -1, 2, -2, …"""
    return sorted(range(-_MOST_LINES_OFF, _MOST_LINES_OFF + 1), key=lambda lines: (abs(lines), -lines))


def _fits(y: float, lines: int, height: int) -> bool:
    return LINE_HEIGHT <= y + lines * LINE_HEIGHT <= height - EDGE


def _any_hit(label: Label, others: Sequence[Label]) -> bool:
    left, right = label.ends
    return any(
        left < other.ends[1] and other.ends[0] < right and abs(label.y - other.y) < LINE_HEIGHT for other in others
    )
