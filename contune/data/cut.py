"""Pieces of a picture, each resized to a square of the same side.

Shapes: V pieces, S side of a square, H height, W width, C channels.
"""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F

Interpolation = Literal["bilinear", "bicubic"]
REDUCTIONS = (8, 4, 2)
"""What a JPEG decoder can divide both sides by while it decodes."""
_REDUCING_GAP = 2
"""Pixels that a piece keeps for each one wanted: enough left to antialias from, at a fraction of the time."""


class Piece(NamedTuple):
    """A box in a picture, in its pixels, and how it is resized."""

    top: int
    left: int
    height: int
    width: int
    interpolation: Interpolation


Cut = Callable[[int, int], Sequence[Piece]]
"""Which pieces to take of a picture this high and this wide."""


def whole(height: int, width: int) -> Sequence[Piece]:
    """All of it, squashed."""
    return (Piece(0, 0, height, width, "bilinear"),)


def reduction(pieces: Sequence[Piece], size: int) -> int:
    """The largest division of the picture's sides that leaves every piece twice `size` pixels, 1 if none does."""
    spare = min(min(piece.height, piece.width) for piece in pieces) // (_REDUCING_GAP * size)
    return next((by for by in REDUCTIONS if by <= spare), 1)


def cut_out(x_HWC: np.ndarray, pieces: Sequence[Piece], height: int, width: int, size: int) -> np.ndarray:
    """uint8 (V, S, S, C). The pieces are boxes in a picture of `height` × `width`, of which x may be a reduction.

    Resized as Pillow resizes a crop, antialiased and with uint8 between the two axes, by torch, whose vector code
    takes a third of Pillow's time; the two differ by a level here and there.
    """
    cut_VSSC = np.empty((len(pieces), size, size, x_HWC.shape[2]), dtype=np.uint8)
    for piece, out_SSC in zip(pieces, cut_VSSC, strict=True):
        rows = _span(piece.top, piece.height, x_HWC.shape[0], height)
        columns = _span(piece.left, piece.width, x_HWC.shape[1], width)
        out_SSC[:] = _resized(x_HWC[rows, columns], size, piece.interpolation)
    return cut_VSSC


def _resized(x_HWC: np.ndarray, size: int, interpolation: Interpolation) -> np.ndarray:
    if x_HWC.shape[:2] == (size, size):
        return x_HWC
    # Copied by numpy: torch would share out even so little among threads, of which callers have their own.
    x_1CHW = torch.from_numpy(np.ascontiguousarray(x_HWC)).permute(2, 0, 1)[None]
    resized = F.interpolate(x_1CHW, size=(size, size), mode=interpolation, antialias=True)
    x_SSC: np.ndarray = resized[0].permute(1, 2, 0).numpy()
    return x_SSC


def _span(start: int, length: int, num: int, num_full: int) -> slice:
    """start..start+length of `num_full` pixels, in a row that has `num` of them."""
    if num == num_full:
        return slice(start, start + length)
    scale = num / num_full
    return slice(round(start * scale), round((start + length) * scale))
