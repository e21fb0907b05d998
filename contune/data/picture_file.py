"""A file, or its bytes → an open picture, its pixels not decoded yet; what is hostile about it is refused here."""

import io
import os
from functools import cache

from PIL import Image, UnidentifiedImageError

from contune.data.broken import BrokenImageError

Encoded = str | bytes | memoryview
"""A path, or the bytes of a picture file."""

_BY_FIRST_BYTES = {b"\x89PN": "PNG", b"\xff\xd8\xff": "JPEG", b"RIF": "WEBP"}
"""The common formats: to try every plugin in turn costs a third of a thumbnail's time."""
_TRUSTED = ("JPEG", "PNG", "WEBP", "BMP", "DIB", "GIF", "TIFF", "PPM", "AVIF", "JPEG2000", "ICO", "TGA")
"""What else Pillow opens is no photo, or is a program (EPS) that it would have run by another program."""


def open_picture(source: Encoded, name: str) -> Image.Image:
    stream = io.BytesIO(read_bytes(source, name))
    known = _BY_FIRST_BYTES.get(bytes(stream.getbuffer()[:3]))
    try:
        image = Image.open(stream, formats=_trusted() if known is None else (known,))
    except Exception as error:  # a damaged file makes Pillow raise nearly anything
        raise undecodable(error, name) from error
    num_pixels, most = image.width * image.height, Image.MAX_IMAGE_PIXELS
    if most is not None and num_pixels > most:  # Pillow itself only warns until it is twice as many
        raise _too_large(name)
    if not num_pixels:
        raise BrokenImageError(f"image {name!r} has no pixels; remove it or save it again", "has no pixels")
    return image


def read_bytes(source: Encoded, name: str) -> bytes | memoryview:
    """All of a file, or the bytes as they are."""
    if not isinstance(source, str):
        return source
    try:
        with open(source, "rb") as file:
            return file.read()
    except OSError as error:
        why = _why_unreadable(source, error)
        raise BrokenImageError(f"cannot read image {name!r}: {why}", f"cannot be read: {why}") from error


def undecodable(error: Exception, name: str) -> BrokenImageError:
    """What Pillow raised, as a sentence."""
    if isinstance(error, BrokenImageError):
        return error
    if isinstance(error, Image.DecompressionBombError | Image.DecompressionBombWarning):
        return _too_large(name)
    if isinstance(error, UnidentifiedImageError):
        reason = "is not an image in a known format"
        return BrokenImageError(f"{name!r} {reason}; remove it or save it again", reason)
    reason = f"is damaged ({' '.join(str(error).split()) or type(error).__name__})"
    return BrokenImageError(f"image {name!r} {reason}; remove it or save it again", reason)


def _too_large(name: str) -> BrokenImageError:
    reason = f"is too large to decode safely (over {Image.MAX_IMAGE_PIXELS:,} pixels)"
    return BrokenImageError(f"image {name!r} {reason}; shrink it first", reason)


def _why_unreadable(path: str, error: OSError) -> str:
    if os.path.islink(path) and not os.path.exists(path):
        return "a link that leads nowhere" if isinstance(error, FileNotFoundError) else "a link that leads in a circle"
    return error.strerror or str(error)


@cache
def _trusted() -> tuple[str, ...]:
    Image.init()
    return tuple(name for name in _TRUSTED if name in Image.OPEN)
