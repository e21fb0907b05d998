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
from functools import partial
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

_TRUSTED = ("JPEG", "PNG", "WEBP", "BMP", "DIB", "GIF", "TIFF", "PPM", "JPEG2000", "ICO", "TGA")
"""The most frequent first. Pillow also opens formats that are no photos, and EPS, which another program would
execute."""
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


Stored = str | bytes | ByteRange | Image.Image
Encoded = Stored | Callable[[], Stored]
"""A picture file: its path, its bytes, or where its bytes are; an open picture; or a function that returns one."""


FIX = "remove it or save it again, or skip broken files with data.broken=skip (contune embed: --broken skip)"


class BrokenImageError(UserError):
    """An image that cannot be decoded. `reason` fits into a list of many."""

    def __init__(self, name: str, reason: str, fix: str = FIX) -> None:
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


class Piece(NamedTuple):
    """A box in a picture, in pixels, and how it is resized."""

    top: int
    left: int
    height: int
    width: int
    interpolation: Interpolation
    exact: bool = False
    """Decode at full resolution and resize in float32: files, PIL images and exports give the same pixels."""


Cut = Callable[[int, int], Sequence[Piece]]
"""Chooses the pieces of a picture from its height and width."""


def whole(height: int, width: int) -> Sequence[Piece]:
    """The whole picture, fast: JPEGs may be reduced while they are decoded, which changes a few gray levels."""
    return (Piece(0, 0, height, width, "bilinear"),)


def _square(side_of: Callable[[int, int], int], height: int, width: int) -> Sequence[Piece]:
    side = side_of(height, width)
    return (Piece((height - side) // 2, (width - side) // 2, side, side, "bilinear", exact=True),)


RESIZES: dict[str, Cut] = {"squash": whole, "crop": partial(_square, min), "pad": partial(_square, max)}
"""How a picture becomes a square: change its aspect ratio, keep the middle, or add black bars. Squashing is fast, the
others are exact."""


def decode_pieces(
    source: Encoded, name: str, cut: Cut, *, size: int | None, channels: int, bits: int = 16
) -> np.ndarray:
    """Decode once, then cut and resize every piece: uint8 (V, S, S, C). A size of None returns the picture itself."""
    with open_picture(source, name) as image:
        if size is None:
            return _load(image, name, channels, bits)[None]
        turned = False
        with _naming(name), suppress(*_UNREADABLE_EXIF):
            turned = image.getexif().get(ExifTags.Base.Orientation) in _TURNED
        width, height = image.size[::-1] if turned else image.size
        pieces = cut(height, width)
        x_HWC = _load(image, name, channels, bits, reduction(pieces, size))
        return cut_out(x_HWC, pieces, height, width, size)


class Header(NamedTuple):
    """What `peek` sees of a picture."""

    width: int
    height: int
    kind: str
    """Its format, by content."""
    is_gray: bool
    bits: int
    """In use: cameras and scanners store 10 or 12 bits in 16-bit files. 0 for other files."""


def peek(source: Encoded, name: str) -> Header:
    """Decodes only 16-bit pictures."""
    with open_picture(source, name) as image:
        is_wide = image.mode.startswith("I;16")
        bits = 0
        if is_wide:
            with _naming(name):
                largest = int(np.asarray(image).max())
            bits = max(8, largest.bit_length()) if largest < 4096 else 16
        return Header(image.width, image.height, image.format or "", is_wide or image.mode in _GRAY_MODES, bits)


def open_picture(source: Encoded, name: str) -> Image.Image:
    """Read the header. Refuses pictures that would take too much memory to decode."""
    if callable(source):
        source = source()
    if isinstance(source, Image.Image):
        with _naming(name):
            return ImageOps.exif_transpose(source)
    content = _read_bytes(source, name)
    with _naming(name):
        image = Image.open(io.BytesIO(content), formats=_TRUSTED)
        num_pixels, most = image.width * image.height, Image.MAX_IMAGE_PIXELS
        if (most is not None and num_pixels > most) or max(image.size) > LONGEST_SIDE:
            raise Image.DecompressionBombError  # Pillow itself only warns up to twice as many
    if not num_pixels:
        raise BrokenImageError(name, "has no pixels")
    return image


def _read_bytes(source: str | bytes | ByteRange, name: str) -> bytes:
    if isinstance(source, bytes):
        return source
    if isinstance(source, ByteRange):
        return os.pread(source.file.fileno(), source.length, source.start)
    try:
        with open(source, "rb") as file:
            return file.read()
    except OSError as error:
        raise BrokenImageError(name, f"cannot be read: {error.strerror or error}") from error


def to_array(image: Image.Image, channels: int) -> np.ndarray:
    """An 8-bit picture as (H, W, C)."""
    if image.mode != _MODES[channels]:
        image = image.convert(_MODES[channels])
    return np.atleast_3d(np.array(image))


def reduction(pieces: Sequence[Piece], size: int) -> int:
    """The largest factor that leaves every piece twice `size` pixels; 1 for exact pieces."""
    spare = min(0 if piece.exact else min(piece.height, piece.width) for piece in pieces) // (_SPARE * size)
    return next((factor for factor in REDUCTIONS if factor <= spare), 1)


def cut_out(x_HWC: np.ndarray, pieces: Sequence[Piece], height: int, width: int, size: int) -> np.ndarray:
    """uint8 (V, S, S, C). The pieces are boxes in a picture of `height` × `width`; x may be a reduction of it.

    Antialiased like Pillow's resize, with uint8 between the two axes, but by torch, which takes a third of the time.
    The two differ by one level here and there. Exact pieces are resized in float32, like the tensors that an encoder
    or an export gets.
    """
    cut_VSSC = np.empty((len(pieces), size, size, x_HWC.shape[2]), dtype=np.uint8)
    for piece, out_SSC in zip(pieces, cut_VSSC, strict=True):
        top, bottom = _span(piece.top, piece.height, x_HWC.shape[0], height)
        left, right = _span(piece.left, piece.width, x_HWC.shape[1], width)
        box_HWC = x_HWC[max(0, top) : bottom, max(0, left) : right]
        if min(piece.top, piece.left) < 0:
            bars = (max(0, -top), max(0, bottom - x_HWC.shape[0])), (max(0, -left), max(0, right - x_HWC.shape[1]))
            box_HWC = np.pad(box_HWC, (*bars, (0, 0)))
        if box_HWC.shape[:2] != (size, size):
            x_1CHW = torch.from_numpy(np.ascontiguousarray(box_HWC)).permute(2, 0, 1)[None]
            # In float32 one channel at a time: all at once leave the cache and take three times as long.
            parts = [x_11HW.float().contiguous() for x_11HW in x_1CHW.split(1, 1)] if piece.exact else [x_1CHW]
            resize = partial(F.interpolate, size=(size, size), mode=piece.interpolation, antialias=True)
            resized = torch.cat(list(map(resize, parts)), 1)
            box_HWC = (resized.round() if piece.exact else resized)[0].permute(1, 2, 0).numpy()
        out_SSC[:] = box_HWC
    return cut_VSSC


def _span(start: int, length: int, num: int, num_full: int) -> tuple[int, int]:
    """start..start+length of `num_full` pixels, in a row that was reduced to `num`."""
    scale = num / num_full
    return round(start * scale), round((start + length) * scale)


def _load(image: Image.Image, name: str, channels: int, bits: int, reduced_by: int = 1) -> np.ndarray:
    """Decode to uint8 (H, W, C), upright. 16-bit files keep the highest 8 of `bits`; transparent pixels turn white."""
    with _naming(name):
        if reduced_by > 1:
            image.draft(None, (max(1, image.width // reduced_by), max(1, image.height // reduced_by)))
        is_wide_pgm = image.format == "PPM" and image.mode == "I"  # Pillow scales it to 0..65535
        image.load()
        with suppress(*_UNREADABLE_EXIF):
            image = ImageOps.exif_transpose(image)
        if image.mode.startswith("I;16") or is_wide_pgm:
            shift = 8 if is_wide_pgm else bits - 8
            image = Image.fromarray(np.minimum(np.asarray(image).astype(np.uint16) >> shift, 255).astype(np.uint8))
        if image.mode in ("I", "F"):
            raise BrokenImageError(name, "has 32-bit pixels", "save it with 8 or 16 bits per channel")
        if image.has_transparency_data:
            white = Image.new("RGBA", image.size, "white")
            image = Image.alpha_composite(white, image.convert("RGBA")).convert("RGB")
        return to_array(image, channels)


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
