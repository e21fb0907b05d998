"""One encoded picture → uint8 pixels, whatever its colours, bit depth or orientation.

Shapes: V pieces of it, C channels, H height, W width, S side of a square.
"""

import struct
from typing import Literal

import numpy as np
from PIL import ExifTags, Image, ImageOps

from contune.data.broken import BrokenImageError
from contune.data.cut import REDUCTIONS, Cut, cut_out, reduction, whole
from contune.data.picture_file import Encoded as Encoded
from contune.data.picture_file import open_picture, undecodable
from contune.data.quiet import quiet
from contune.errors import UserError

MODES: dict[int, Literal["L", "RGB"]] = {1: "L", 3: "RGB"}
_GRAY_MODES = {"1", "L", "LA", "La", "I", "F"}
_TURNED = (5, 6, 7, 8)
"""The EXIF orientations in which height and width change places."""
_UNREADABLE_EXIF = (SyntaxError, ValueError, KeyError, TypeError, struct.error)
"""The picture itself is fine then, and stands as it is stored."""


def decode_image(source: Encoded, name: str, *, size: int | None, channels: int) -> np.ndarray:
    """Pixels (C, H, W). `size` squashes to a square; None keeps the picture's own height and width."""
    if size is not None:
        return channels_first(decode_pieces(source, name, whole, size=size, channels=channels)[0])
    with quiet(), open_picture(source, name) as image:
        return channels_first(to_array(_eight_bit(_load(image, name), name), channels))


def decode_pieces(source: Encoded, name: str, cut: Cut, *, size: int, channels: int) -> np.ndarray:
    """The pieces that `cut` chooses, from a single decoding: uint8 (V, S, S, C)."""
    with quiet(), open_picture(source, name) as image:
        return pieces_of(image, name, cut, size=size, channels=channels)


def pieces_of(image: Image.Image, name: str, cut: Cut, *, size: int, channels: int) -> np.ndarray:
    """As `decode_pieces`, of a picture that is open."""
    height, width = _upright_size(image, name)
    pieces = cut(height, width)
    x_HWC = to_array(_eight_bit(_load(image, name, reduction(pieces, size)), name), channels)
    return cut_out(x_HWC, pieces, height, width, size)


def verify(source: Encoded, name: str) -> None:
    """Raises what decoding would, for less: all is read, but a JPEG decoded at an eighth of its size."""
    with quiet(), open_picture(source, name) as image:
        _eight_bit(_load(image, name, REDUCTIONS[0]), name)


def peek(source: Encoded, name: str) -> tuple[int, bool]:
    """The shorter side and whether the picture is gray, from its header alone."""
    with quiet(), open_picture(source, name) as image:
        return min(image.size), is_gray(image)


def is_gray(image: Image.Image) -> bool:
    return image.mode in _GRAY_MODES or image.mode.startswith("I;16")


def to_array(image: Image.Image, channels: int) -> np.ndarray:
    """An 8-bit picture as (H, W, C)."""
    if channels not in MODES:
        raise UserError(f"{channels} channels asked for; images are decoded to 1 (gray) or 3 (RGB)")
    if image.mode != MODES[channels]:
        image = image.convert(MODES[channels])
    return np.atleast_3d(np.array(image))


def channels_first(x_HWC: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x_HWC.transpose(2, 0, 1))


def _load(image: Image.Image, name: str, reduced_by: int = 1) -> Image.Image:
    """The picture upright and, where it is a JPEG, with its sides divided while it is decoded."""
    try:
        if reduced_by > 1:
            image.draft(None, (max(1, image.width // reduced_by), max(1, image.height // reduced_by)))
        is_wide_pgm = image.format == "PPM" and image.mode == "I"  # Pillow scales it to 0..65535
        image.load()
        upright = _upright(image)
        return Image.fromarray(np.asarray(upright).astype(np.uint16)) if is_wide_pgm else upright
    except Exception as error:
        raise undecodable(error, name) from error


def _upright_size(image: Image.Image, name: str) -> tuple[int, int]:
    """Height and width as they will be once the picture is turned the way its EXIF says."""
    try:
        turned = image.getexif().get(ExifTags.Base.Orientation) in _TURNED
    except _UNREADABLE_EXIF:
        turned = False
    except Exception as error:  # a PNG is read to its end for this
        raise undecodable(error, name) from error
    return image.size if turned else (image.height, image.width)


def _upright(image: Image.Image) -> Image.Image:
    try:
        return ImageOps.exif_transpose(image)
    except _UNREADABLE_EXIF:
        return image


def _eight_bit(image: Image.Image, name: str) -> Image.Image:
    """16 bits keep their high byte (Pillow would clip them to white); transparency shows white behind it."""
    if image.mode.startswith("I;16"):
        return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if image.mode in ("I", "F"):
        what = "32-bit pixels" if np.isfinite(np.asarray(image)).all() else "32-bit pixels, some of them not finite"
        raise BrokenImageError(
            f"image {name!r} has {what}, whose range is not stated in the file; save it with 8 or 16 bits a channel",
            f"has {what}",
        )
    if image.has_transparency_data:
        white = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(white, image.convert("RGBA")).convert("RGB")
    return image
