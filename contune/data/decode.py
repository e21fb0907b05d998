"""Decode one picture file into uint8 pixels, whatever its format, channels, bit depth or orientation.

Pillow reads what it has a mode for. Files with other channels, floats, NumPy arrays and DICOM become arrays, whose
values a linear rule turns into the levels 0 to 255.

Shapes: V pieces of a picture, C channels, H height, W width, S side of a square.
"""

import io
import json
import logging
import struct
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError

from contune.config import MOST_CHANNELS
from contune.console import plural
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
"""The most frequent first. Pillow also opens formats that are no photos, and EPS, which starts another program."""
_MODES: dict[int, Literal["L", "RGB"]] = {1: "L", 3: "RGB"}
_GRAY_MODES = {"1", "L", "LA", "La", "I", "F"}
_EXTRA_SAMPLES = 338
"""The TIFF tag that says what channels beyond gray or color are; 0: something other than transparency."""
_UNREADABLE_EXIF = (SyntaxError, ValueError, KeyError, TypeError, struct.error)
"""Then the picture itself is fine and keeps its stored orientation."""


Stored = str | bytes | Image.Image | np.ndarray
Encoded = Stored | Callable[[], Stored]
"""A picture file: its path or its bytes; an open picture; an array of its values; or a function that returns one."""
Ranges = tuple[tuple[float, float], ...]
"""For each channel, or for all of them, the values that become the levels 0 and 255."""
_FIX = "remove it or save it again, or skip broken files (data.broken=skip, --broken skip)"


class BrokenImageError(UserError):
    """An image that cannot be decoded. `reason` fits into a list of many; `_naming` adds the name."""

    def __init__(self, reason: str, fix: str = _FIX, name: str = "") -> None:
        super().__init__(reason, fix, name)
        self.reason, self.fix, self.name = reason, fix, name

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
    source: Encoded,
    name: str,
    cut: Cut,
    *,
    size: int | None,
    channels: int,
    bits: int = 16,
    ranges: Ranges | None = None,
) -> np.ndarray:
    """Decode once, then cut and resize every piece: uint8 (V, S, S, C). A size of None returns the picture itself.

    channels: 0 for its own. ranges: of an array; None for its own.
    """
    source = source() if callable(source) else source  # errors of the user's own function keep their type
    with _naming(name):
        picture = open_picture(source, channels)
        if isinstance(picture, np.ndarray):
            return pieces_of(to_levels(picture, ranges), name, cut, size, channels)
        with picture as image:
            if size is None:
                return _load(image, channels, bits)[None]
            if image.format == "TIFF":  # Pillow turns this format upright while loading it, and the size with it
                image.load()
            width, height = image.size
            with suppress(*_UNREADABLE_EXIF):
                if image.getexif().get(ExifTags.Base.Orientation) in (5, 6, 7, 8):  # they swap height and width
                    width, height = height, width
            pieces = cut(height, width)
            return cut_out(_load(image, channels, bits, reduction(pieces, size)), pieces, height, width, size)


def pieces_of(x_HWC: np.ndarray, name: str, cut: Cut, size: int | None, channels: int) -> np.ndarray:
    """As `decode_pieces`, of uint8 pixels: gray and color become each other, other channels must fit."""
    height, width, own = x_HWC.shape
    if channels not in (0, own):
        if {own, channels} != set(_MODES):
            fix = "use images with the same channels, and set data.channels to their number"
            raise BrokenImageError(f"has {plural(own, 'channel')}, not {channels}", fix, name)
        x_HWC = to_array(Image.fromarray(x_HWC[..., 0] if own == 1 else np.ascontiguousarray(x_HWC)), channels)
    return x_HWC[None] if size is None else cut_out(x_HWC, cut(height, width), height, width, size)


class Header(NamedTuple):
    """What `peek` sees of a picture."""

    width: int
    height: int
    kind: str
    """Its format, by content."""
    channels: int
    """1 for gray, 3 for all that Pillow makes RGB."""
    bits: int = 0
    """In use: cameras and scanners store 10 or 12 bits in 16-bit files. 0 for other files."""
    ranges: Ranges = ()
    """The smallest and largest value of each channel, of an array that is not uint8."""


def peek(source: Encoded, name: str, channels: int = 0, *, full_range: bool = False) -> Header:
    """Decodes only 16-bit pictures and arrays. channels: to read it with; 0 for its own.

    full_range: instead of an array's own ranges, those of its type; 0 to 1 for floats.
    """
    source = source() if callable(source) else source  # errors of the user's own function keep their type
    with _naming(name):
        picture = open_picture(source, channels)
        if isinstance(picture, np.ndarray):
            height, width, own = picture.shape
            ranges: Ranges = ()
            if picture.dtype not in (np.uint8, np.bool_):
                limits = np.iinfo(picture.dtype) if picture.dtype.kind in "iu" else None
                whole_type = (0.0, 1.0) if limits is None else (float(limits.min), float(limits.max))
                ranges = (whole_type,) * own if full_range else value_ranges(picture)
            return Header(width, height, "array", own, 0, ranges)
        with picture as image:
            bits = 0
            if image.mode.startswith("I;16"):
                largest = int(np.asarray(image).max())
                bits = max(8, largest.bit_length()) if largest < 4096 else 16
            return Header(image.width, image.height, image.format or "", _own_channels(image), bits)


def open_picture(source: Stored, channels: int = 0) -> Image.Image | np.ndarray:
    """Read the header. Refuses pictures that would take too much memory to decode.

    Returns values (H, W, C) for pictures that Pillow has no mode for, and for a number of channels other than 1 and 3.
    """
    if isinstance(source, np.ndarray):
        return _as_picture(source, any_order=True)
    if isinstance(source, Image.Image):
        image = ImageOps.exif_transpose(source)
    else:
        content = source if isinstance(source, bytes) else Path(source).read_bytes()
        if content.startswith(b"\x93NUMPY"):
            return _as_picture(np.load(io.BytesIO(content), allow_pickle=False), any_order=True)
        if content[128:132] == b"DICM":
            return _as_picture(_read_dicom(content))
        if is_tiff := content[:4] in (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"):
            for reader in ("PIL.TiffImagePlugin", "tifffile"):  # they log what they find odd about a file
                logging.getLogger(reader).disabled = True
        try:
            image = Image.open(io.BytesIO(content), formats=_TRUSTED)
        except UnidentifiedImageError:
            if is_tiff:
                return _as_picture(_read_tiff(content))
            raise
        _check_size(image.height, image.width)
        has_more = is_tiff and not channels and 0 in image.tag_v2.get(_EXTRA_SAMPLES, ())  # type: ignore[attr-defined]
        if has_more or (is_tiff and channels not in (0, *_MODES)):
            return _as_picture(_read_tiff(content))
    is_wide_pgm = image.format == "PPM" and image.mode == "I"
    if channels not in (0, *_MODES) or (image.mode in ("I", "F") and not is_wide_pgm):
        return _as_picture(np.asarray(_upright(image)))
    return image


def _upright(image: Image.Image) -> Image.Image:
    image.load()
    with suppress(*_UNREADABLE_EXIF):
        return ImageOps.exif_transpose(image)
    return image


def _check_size(height: int, width: int) -> None:
    if not height * width:
        raise BrokenImageError("has no pixels")
    if height * width > (Image.MAX_IMAGE_PIXELS or np.inf) or max(height, width) > LONGEST_SIDE:
        raise Image.DecompressionBombError  # Pillow itself only warns up to twice as many


def _as_picture(x: np.ndarray, *, any_order: bool = False) -> np.ndarray:
    """(H, W, C) from (H, W) or (H, W, C); in any order also from (C, H, W), where the first axis is the shortest."""
    x = x[:, :, None] if x.ndim == 2 else x
    if any_order and x.ndim == 3 and x.shape[0] < min(x.shape[1:]):
        x = x.transpose(1, 2, 0)
    if x.ndim != 3 or not 1 <= x.shape[2] <= MOST_CHANNELS or x.dtype.kind not in "buif":
        fix = f"save height × width × up to {MOST_CHANNELS} channels of numbers"
        raise BrokenImageError(f"has the shape {x.shape} and the type {x.dtype}", fix)
    _check_size(x.shape[0], x.shape[1])
    return x


def _read_tiff(content: bytes) -> np.ndarray:
    """(H, W, C) of the first series: channels may be samples of a pixel, planes or pages."""
    import tifffile

    with tifffile.TiffFile(io.BytesIO(content)) as file:
        series = file.series[0]
        rows, columns = series.axes.index("Y"), series.axes.index("X")
        height, width = series.shape[rows], series.shape[columns]
        _check_size(height, width)
        if series.size > MOST_CHANNELS * height * width:
            raise BrokenImageError(f"has {series.size // (height * width)} channels or pages", "save fewer")
        return np.moveaxis(series.asarray(), (rows, columns), (0, 1)).reshape(height, width, -1)


def _read_dicom(content: bytes) -> np.ndarray:
    """Rescaled values as float32. With a window, its levels as uint8. Color as it is. Bright is always high."""
    import pydicom
    from pydicom.pixels.processing import apply_modality_lut, apply_windowing
    from pydicom.pixels.utils import pixel_array

    file = pydicom.dcmread(io.BytesIO(content))
    num_frames = int(file.get("NumberOfFrames") or 1)
    if num_frames > 1:
        raise BrokenImageError(f"has {num_frames} frames", "save each frame as a file")
    _check_size(file.Rows, file.Columns)
    stored = pixel_array(file)
    if file.SamplesPerPixel > 1:
        return stored
    if file.PhotometricInterpretation not in ("MONOCHROME1", "MONOCHROME2"):
        raise BrokenImageError(f"has {file.PhotometricInterpretation} pixels", "save it as gray or RGB")
    lowest = -(2 ** (file.BitsStored - 1)) if file.PixelRepresentation else 0
    limits = np.array([lowest, lowest + 2**file.BitsStored - 1])
    low, high = apply_modality_lut(limits, file).astype(np.float32)
    x_HW = apply_modality_lut(stored, file).astype(np.float32)
    has_window = "WindowWidth" in file and "WindowCenter" in file
    if has_window:
        x_HW = apply_windowing(x_HW, file)
    if file.PhotometricInterpretation == "MONOCHROME1":  # its low values are bright
        x_HW = low + high - x_HW
    return to_levels(x_HW[:, :, None], ((low, high),)) if has_window else x_HW


def value_ranges(x_HWC: np.ndarray) -> Ranges:
    """The smallest and largest finite value of each channel; 0 and 0 where there is none."""
    finite_HWC = np.ma.masked_invalid(x_HWC)
    low_C, high_C = (np.ma.filled(extreme, 0).tolist() for extreme in (finite_HWC.min((0, 1)), finite_HWC.max((0, 1))))
    return tuple((float(low), float(high)) for low, high in zip(low_C, high_C, strict=True))


def to_levels(x_HWC: np.ndarray, ranges: Ranges | None) -> np.ndarray:
    """uint8: each channel's range as 0 to 255, values outside clipped, NaN as 0. uint8 values stay as they are.

    ranges: None for the picture's own; () if the encoder has seen no such pictures, an error but for floats in [0, 1].
    """
    if x_HWC.dtype == np.uint8:
        return x_HWC
    if x_HWC.dtype == np.bool_:
        return x_HWC.astype(np.uint8) * 255
    ranges = value_ranges(x_HWC) if ranges is None else ranges
    if not ranges and x_HWC.dtype.kind == "f" and 0 <= x_HWC.min() <= x_HWC.max() <= 1:
        ranges = ((0.0, 1.0),)
    if len(ranges) not in (1, x_HWC.shape[2]):
        known = f"{len(ranges)} channels of such values" if ranges else "8 or 16 bits per channel"
        reason = f"has {x_HWC.shape[2]} × {x_HWC.dtype} pixels; training saw {known}"
        raise BrokenImageError(reason, "save it like the training images")
    low_C, high_C = np.array(ranges, dtype=np.float64).T
    scale_C = np.where(high_C > low_C, 1 / np.where(high_C > low_C, high_C - low_C, 1), 0)
    with np.errstate(over="ignore", invalid="ignore"):
        share_HWC = (x_HWC - low_C) * scale_C
    levels_HWC: np.ndarray = np.nan_to_num(share_HWC, nan=0.0, posinf=1.0, neginf=0.0).clip(0, 1) * 255
    return levels_HWC.round().astype(np.uint8)


def _own_channels(image: Image.Image) -> int:
    return 1 if image.mode.startswith("I;16") or image.mode in _GRAY_MODES else 3


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
    down, across = x_HWC.shape[0] / height, x_HWC.shape[1] / width
    for piece, out_SSC in zip(pieces, cut_VSSC, strict=True):
        top, bottom = round(piece.top * down), round((piece.top + piece.height) * down)
        left, right = round(piece.left * across), round((piece.left + piece.width) * across)
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


def _load(image: Image.Image, channels: int, bits: int, reduced_by: int = 1) -> np.ndarray:
    """Decode to uint8 (H, W, C), upright. 16-bit files keep the highest 8 of `bits`; transparent pixels turn white."""
    channels = channels or _own_channels(image)
    if reduced_by > 1:
        image.draft(None, (max(1, image.width // reduced_by), max(1, image.height // reduced_by)))
    is_wide_pgm = image.format == "PPM" and image.mode == "I"  # Pillow scales it to 0..65535
    image = _upright(image)
    if image.mode.startswith("I;16") or is_wide_pgm:
        shift = 8 if is_wide_pgm else bits - 8
        image = Image.fromarray(np.minimum(np.asarray(image).astype(np.uint16) >> shift, 255).astype(np.uint8))
    if image.has_transparency_data:
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image.convert("RGBA")).convert("RGB")
    return to_array(image, channels)


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Readers without warnings about odd metadata. What they raise becomes a BrokenImageError with this name."""
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module=r"(PIL|pydicom|tifffile)\b")
            yield
    except BrokenImageError as error:
        raise BrokenImageError(error.reason, error.fix, name) from error
    except ImportError as error:
        fix = "run pip install -e '.[tiff,dicom]' in the clone"
        raise BrokenImageError(f"needs {error.name}", fix, name) from error
    except Exception as error:  # damaged files make readers raise nearly anything
        reason = f"is damaged ({' '.join(str(error).split()) or type(error).__name__})"
        if isinstance(error, UnidentifiedImageError):
            reason = "is not an image in a known format"
        elif isinstance(error, Image.DecompressionBombError):
            most = f"over {Image.MAX_IMAGE_PIXELS:,} pixels, or {LONGEST_SIDE:,} on a side"
            reason = f"is too large to decode safely ({most})"
        elif isinstance(error, OSError) and error.strerror:
            reason = f"cannot be read: {error.strerror}"
        raise BrokenImageError(reason, name=name) from error
