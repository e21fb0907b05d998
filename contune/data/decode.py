"""Decode one picture file into uint8 pixels, whatever its format, color mode, bit depth or orientation.

Shapes: V pieces of a picture, C channels, H height, W width, S side of a square.
"""

import io
import json
import os
import struct
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError

from contune.errors import UserError
from contune.files import write_atomic

Interpolation = Literal["bilinear", "bicubic"]

LONGEST_SIDE = 65_535
"""As in JPEG. Resizing a strip of 1 × 80,000,000 pixels would need an intermediate picture of 54 GB."""
REDUCTIONS = (8, 4, 2)
"""Factors by which a JPEG decoder can shrink both sides while it decodes."""
_SPARE = 2
"""A reduced piece keeps this many pixels per output pixel: enough to antialias, at a fraction of the time."""

_BY_FIRST_BYTES = {b"\x89PN": "PNG", b"\xff\xd8\xff": "JPEG", b"RIF": "WEBP"}
"""Trying all of Pillow's plugins in turn takes a third of a thumbnail's time."""
_TRUSTED = ("JPEG", "PNG", "WEBP", "BMP", "DIB", "GIF", "TIFF", "PPM", "AVIF", "JPEG2000", "ICO", "TGA")
"""Pillow also opens formats that are no photos, and EPS, which another program would execute."""
_MODES: dict[int, Literal["L", "RGB"]] = {1: "L", 3: "RGB"}
_GRAY_MODES = {"1", "L", "LA", "La", "I", "F"}
_TURNED = (5, 6, 7, 8)
"""EXIF orientations that swap height and width."""
_UNREADABLE_EXIF = (SyntaxError, ValueError, KeyError, TypeError, struct.error)
"""Then the picture itself is fine and keeps its stored orientation."""


class ByteRange(NamedTuple):
    """A picture file inside an open file."""

    file: Any
    """Anything with `fileno()`."""
    start: int
    length: int


Encoded = str | bytes | ByteRange
"""A picture file: its path, its bytes, or where its bytes are."""


class BrokenImageError(UserError):
    """An image that cannot be decoded. `reason` fits into a list of many."""

    def __init__(self, name: str, reason: str, fix: str = "remove it or save it again") -> None:
        super().__init__(name, reason, fix)
        self.name, self.reason, self.fix = name, reason, fix

    def __str__(self) -> str:
        return f"{self.name!r} {self.reason}; {self.fix}"


class Broken(NamedTuple):
    """One entry in a list of images that were skipped."""

    name: str
    reason: str


def write_broken(path: Path, broken: Sequence[Broken]) -> None:
    write_atomic(path, json.dumps([one._asdict() for one in broken], indent=2) + "\n")


def is_broken_list(path: Path) -> bool:
    """Whether `write_broken` wrote this file."""
    content = json.loads(path.read_text(encoding="utf-8"))
    return isinstance(content, list) and all(isinstance(one, dict) and {*one} == {*Broken._fields} for one in content)


class Piece(NamedTuple):
    """A box in a picture, in pixels, and how it is resized."""

    top: int
    left: int
    height: int
    width: int
    interpolation: Interpolation


Cut = Callable[[int, int], Sequence[Piece]]
"""Chooses the pieces of a picture from its height and width."""


def whole(height: int, width: int) -> Sequence[Piece]:
    """The cut that squashes the whole picture to a square."""
    return (Piece(0, 0, height, width, "bilinear"),)


def decode_image(source: Encoded, name: str, *, size: int | None, channels: int) -> np.ndarray:
    """uint8 (C, H, W), squashed to a square of `size`; None keeps the picture's own height and width."""
    if size is not None:
        return channels_first(decode_pieces(source, name, whole, size=size, channels=channels)[0])
    with open_picture(source, name) as image:
        return channels_first(to_array(_load(image, name), channels))


def decode_pieces(source: Encoded, name: str, cut: Cut, *, size: int, channels: int) -> np.ndarray:
    """Decode once, then cut and resize every piece: uint8 (V, S, S, C)."""
    with open_picture(source, name) as image:
        return pieces_of(image, name, cut, size=size, channels=channels)


def pieces_of(image: Image.Image, name: str, cut: Cut, *, size: int, channels: int) -> np.ndarray:
    """As `decode_pieces`, for an open picture."""
    with _naming(name):
        try:
            turned = image.getexif().get(ExifTags.Base.Orientation) in _TURNED
        except _UNREADABLE_EXIF:
            turned = False
    width, height = image.size[::-1] if turned else image.size
    pieces = cut(height, width)
    x_HWC = to_array(_load(image, name, reduction(pieces, size)), channels)
    return cut_out(x_HWC, pieces, height, width, size)


def peek(source: Encoded, name: str) -> tuple[int, bool]:
    """The shorter side and whether the picture is gray, from the header alone."""
    with open_picture(source, name) as image:
        return min(image.size), is_gray(image)


def is_gray(image: Image.Image) -> bool:
    return image.mode in _GRAY_MODES or image.mode.startswith("I;16")


def read_bytes(source: Encoded, name: str) -> bytes:
    if isinstance(source, bytes):
        return source
    if isinstance(source, ByteRange):
        return os.pread(source.file.fileno(), source.length, source.start)
    try:
        with open(source, "rb") as file:
            return file.read()
    except OSError as error:
        dead = os.path.islink(source) and not os.path.exists(source)
        why = "the link is dead" if dead else error.strerror or str(error)
        raise BrokenImageError(name, f"cannot be read: {why}") from error


def open_picture(source: Encoded, name: str) -> Image.Image:
    """Read the header. Refuses pictures that would take too much memory to decode."""
    content = read_bytes(source, name)
    known = _BY_FIRST_BYTES.get(content[:3])
    with _naming(name):
        image = Image.open(io.BytesIO(content), formats=_trusted() if known is None else (known,))
        num_pixels, most = image.width * image.height, Image.MAX_IMAGE_PIXELS
        if (most is not None and num_pixels > most) or max(image.size) > LONGEST_SIDE:
            raise Image.DecompressionBombError  # Pillow itself only warns up to twice as many
    if not num_pixels:
        raise BrokenImageError(name, "has no pixels")
    return image


def to_array(image: Image.Image, channels: int) -> np.ndarray:
    """An 8-bit picture as (H, W, C)."""
    if image.mode != _MODES[channels]:
        image = image.convert(_MODES[channels])
    return np.atleast_3d(np.array(image))


def channels_first(x_HWC: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x_HWC.transpose(2, 0, 1))


def reduction(pieces: Sequence[Piece], size: int) -> int:
    """The largest factor that leaves every piece twice `size` pixels, or 1."""
    spare = min(min(piece.height, piece.width) for piece in pieces) // (_SPARE * size)
    return next((factor for factor in REDUCTIONS if factor <= spare), 1)


def cut_out(x_HWC: np.ndarray, pieces: Sequence[Piece], height: int, width: int, size: int) -> np.ndarray:
    """uint8 (V, S, S, C). The pieces are boxes in a picture of `height` × `width`; x may be a reduction of it.

    Antialiased like Pillow's resize, with uint8 between the two axes, but by torch, which takes a third of the time.
    The two differ by one level here and there.
    """
    cut_VSSC = np.empty((len(pieces), size, size, x_HWC.shape[2]), dtype=np.uint8)
    for piece, out_SSC in zip(pieces, cut_VSSC, strict=True):
        rows = _span(piece.top, piece.height, x_HWC.shape[0], height)
        columns = _span(piece.left, piece.width, x_HWC.shape[1], width)
        box_HWC = x_HWC[rows, columns]
        if box_HWC.shape[:2] != (size, size):
            x_1CHW = torch.from_numpy(np.ascontiguousarray(box_HWC)).permute(2, 0, 1)[None]
            resized = F.interpolate(x_1CHW, size=(size, size), mode=piece.interpolation, antialias=True)
            box_HWC = resized[0].permute(1, 2, 0).numpy()
        out_SSC[:] = box_HWC
    return cut_VSSC


def _span(start: int, length: int, num: int, num_full: int) -> slice:
    """start..start+length of `num_full` pixels, in a row that was reduced to `num`."""
    if num == num_full:
        return slice(start, start + length)
    scale = num / num_full
    return slice(round(start * scale), round((start + length) * scale))


def _load(image: Image.Image, name: str, reduced_by: int = 1) -> Image.Image:
    """Decode to 8 bits, upright. 16 bits keep their high byte; transparent pixels turn white."""
    with _naming(name):
        if reduced_by > 1:
            image.draft(None, (max(1, image.width // reduced_by), max(1, image.height // reduced_by)))
        is_wide_pgm = image.format == "PPM" and image.mode == "I"  # Pillow scales it to 0..65535
        image.load()
        with suppress(*_UNREADABLE_EXIF):
            image = ImageOps.exif_transpose(image)
        if image.mode.startswith("I;16") or is_wide_pgm:
            return Image.fromarray((np.asarray(image).astype(np.uint16) >> 8).astype(np.uint8))
        if image.mode in ("I", "F"):
            kind = "32-bit pixels" if np.isfinite(np.asarray(image)).all() else "32-bit pixels that are not finite"
            raise BrokenImageError(name, f"has {kind}", "save it with 8 or 16 bits per channel")
        if image.has_transparency_data:
            white = Image.new("RGBA", image.size, "white")
            return Image.alpha_composite(white, image.convert("RGBA")).convert("RGB")
        return image


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Pillow without warnings about odd metadata. Whatever it raises becomes a BrokenImageError."""
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module=r"PIL\b")
            yield
    except BrokenImageError:
        raise
    except UnidentifiedImageError as error:
        raise BrokenImageError(name, "is not an image in a known format") from error
    except Image.DecompressionBombError as error:
        most = f"over {Image.MAX_IMAGE_PIXELS:,} pixels, or {LONGEST_SIDE:,} on a side"
        raise BrokenImageError(name, f"is too large to decode safely ({most})", "shrink it") from error
    except Exception as error:  # damaged files make Pillow raise nearly anything
        reason = f"is damaged ({' '.join(str(error).split()) or type(error).__name__})"
        raise BrokenImageError(name, reason) from error


@cache
def _trusted() -> tuple[str, ...]:
    Image.init()
    return tuple(name for name in _TRUSTED if name in Image.OPEN)
