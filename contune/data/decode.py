"""One encoded picture → uint8 pixels, whatever its colours, bit depth or orientation.

Shapes: C channels, H height, W width.
"""

import io
import struct
from typing import Literal

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from contune.errors import UserError

Encoded = str | bytes | memoryview
"""A path, or the bytes of a picture file."""

MODES: dict[int, Literal["L", "RGB"]] = {1: "L", 3: "RGB"}
_FORMATS = {b"\x89PN": "PNG", b"\xff\xd8\xff": "JPEG", b"RIF": "WEBP"}
"""First bytes of the common formats: to try every plugin in turn costs a third of a thumbnail's time."""
_GRAY_MODES = {"1", "L", "LA", "La", "I", "F"}


def decode_image(source: Encoded, name: str, *, size: int | None, channels: int) -> np.ndarray:
    """Pixels (C, H, W). `size` squashes to a square; None keeps the picture's own height and width."""
    image = _load(source, name, size)
    return pixels(_eight_bit(image, name), size=size, channels=channels)


def peek(source: Encoded, name: str) -> tuple[int, bool]:
    """The shorter side and whether the picture is gray, from its header alone."""
    try:
        with _open(source, name) as image:
            return min(image.size), image.mode in _GRAY_MODES or image.mode.startswith("I;16")
    except Exception as error:  # a damaged file makes Pillow raise nearly anything
        raise _undecodable(error, name) from error


def pixels(image: Image.Image, *, size: int | None, channels: int) -> np.ndarray:
    """An 8-bit picture as (C, H, W): colours first, then a bilinear, antialiased squash."""
    if channels not in MODES:
        raise UserError(f"{channels} channels asked for; images are decoded to 1 (gray) or 3 (RGB)")
    if image.mode != MODES[channels]:
        image = image.convert(MODES[channels])
    if size is not None and image.size != (size, size):
        image = image.resize((size, size), Image.Resampling.BILINEAR)
    x_HWC = np.atleast_3d(np.asarray(image))
    return np.ascontiguousarray(x_HWC.transpose(2, 0, 1))


def _load(source: Encoded, name: str, size: int | None) -> Image.Image:
    try:
        with _open(source, name) as image:
            if size is not None:
                # A JPEG decoder can halve while it decodes. Twice the wanted size leaves the final
                # resize enough pixels to antialias from, at a fraction of the time.
                image.draft(None, (2 * size, 2 * size))
            is_wide_pgm = image.format == "PPM" and image.mode == "I"  # Pillow scales it to 0..65535
            image.load()
            upright = _upright(image)
            return Image.fromarray(np.asarray(upright).astype(np.uint16)) if is_wide_pgm else upright
    except Exception as error:  # a damaged file makes Pillow raise nearly anything
        raise _undecodable(error, name) from error


def _open(source: Encoded, name: str) -> Image.Image:
    stream = _stream(source, name)
    known = _FORMATS.get(bytes(stream.getbuffer()[:3]))
    return Image.open(stream, formats=None if known is None else (known,))


def _stream(source: Encoded, name: str) -> io.BytesIO:
    if not isinstance(source, str):
        return io.BytesIO(source)
    try:
        with open(source, "rb") as file:
            return io.BytesIO(file.read())
    except OSError as error:
        raise UserError(f"cannot read image {name!r}: {error.strerror}") from error


def _upright(image: Image.Image) -> Image.Image:
    try:
        return ImageOps.exif_transpose(image)
    except (SyntaxError, ValueError, KeyError, TypeError, struct.error):
        return image  # unreadable EXIF: the picture itself is fine, and stands as it is stored


def _eight_bit(image: Image.Image, name: str) -> Image.Image:
    """16 bits keep their high byte (Pillow would clip them to white); transparency shows white behind it."""
    if image.mode.startswith("I;16"):
        return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if image.mode in ("I", "F"):
        raise UserError(
            f"image {name!r} has 32-bit pixels, whose range is not stated in the file; "
            "save it with 8 or 16 bits a channel"
        )
    if image.has_transparency_data:
        white = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(white, image.convert("RGBA")).convert("RGB")
    return image


def _undecodable(error: Exception, name: str) -> UserError:
    if isinstance(error, UserError):
        return error
    if isinstance(error, Image.DecompressionBombError | Image.DecompressionBombWarning):
        rule = f"over {Image.MAX_IMAGE_PIXELS:,} pixels"
        return UserError(f"image {name!r} is too large to decode safely ({rule}); shrink it first")
    if isinstance(error, UnidentifiedImageError):
        return UserError(f"{name!r} is not an image in a known format; remove it or save it again")
    return UserError(f"image {name!r} is damaged ({error}); remove it or save it again")
