"""What one look at an encoded image tells: size, colours, whether it decodes, and what it would be a copy of."""

from hashlib import blake2b
from typing import NamedTuple

import numpy as np

from contune.data.broken import BrokenImageError
from contune.data.cut import whole
from contune.data.decode import is_gray, pieces_of
from contune.data.picture_file import Encoded, open_picture, read_bytes
from contune.data.quiet import quiet

LARGEST_COMPARED = 64
"""Pictures are compared at this many pixels a side, and small square ones pixel by pixel."""


class Inspection(NamedTuple):
    """Of a broken image only the reason, and of its file what could be read."""

    reason: str | None = None
    width: int = 0
    height: int = 0
    kind: str = ""
    """JPEG, PNG, …, by its content and not by its name."""
    gray: bool = False
    constant: bool = False
    """All pixels have the same colour."""
    file: bytes = b""
    """A hash of the bytes."""
    picture: bytes = b""
    """A hash of its size and of its pixels: equal where the same picture was saved again without loss."""


def inspect(source: Encoded, name: str) -> Inspection:
    try:
        content = read_bytes(source, name)
        with quiet(), open_picture(content, name) as image:
            width, height, kind, gray = image.width, image.height, image.format or "", is_gray(image)
            side = min(LARGEST_COMPARED, width, height)
            x_SSC = pieces_of(image, name, whole, size=side, channels=3)[0]
    except BrokenImageError as error:
        return Inspection(reason=error.reason)
    return Inspection(
        width=width,
        height=height,
        kind=kind,
        gray=gray,
        constant=bool((x_SSC == x_SSC[0, 0]).all()),
        file=_hash(content),
        picture=_hash(f"{width}×{height} ".encode() + np.ascontiguousarray(x_SSC).tobytes()),
    )


def inspect_pixels(x_CHW: np.ndarray) -> Inspection:
    """As `inspect`, of pixels that are decoded already."""
    channels, height, width = x_CHW.shape
    digest = _hash(x_CHW.tobytes())
    constant = bool((x_CHW == x_CHW[:, :1, :1]).all())
    return Inspection(None, width, height, "pixels", channels == 1, constant, digest, digest)


def _hash(content: bytes | memoryview) -> bytes:
    return blake2b(content, digest_size=16).digest()
