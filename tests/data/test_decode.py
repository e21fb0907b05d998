"""Decoding: exact pixels from every kind of file, crops as torchvision makes them, and errors for hostile files."""

import io
import random
import struct
import tracemalloc
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from fuzzing import cases, damaged, for_all, seeds
from pictures import DEAD_LINK, WAYS, as_image, bomb, encoded, random_pixels, write_broken
from PIL import Image

from contune.check import inspect
from contune.data import ImageSet
from contune.data.decode import (
    BrokenImageError,
    Encoded,
    Interpolation,
    Piece,
    decode_pieces,
    peek,
    reduction,
)
from contune.device import torchvision

TF = torchvision.transforms.functional
MODES = {
    "bilinear": torchvision.transforms.InterpolationMode.BILINEAR,
    "bicubic": torchvision.transforms.InterpolationMode.BICUBIC,
}
BOXES = [(0, 0, 75, 100), (10, 20, 40, 30), (3, 50, 17, 49), (60, 0, 15, 100), (30, 30, 24, 24)]


def decode(source: str | bytes, size: int | None = None, channels: int = 3) -> np.ndarray:
    return ImageSet(images=[source], names=["the file"]).decode(0, size, channels)


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "BMP", "TIFF", "PPM"])
@pytest.mark.parametrize("channels", [1, 3])
def test_lossless_formats_are_exact(kind: str, channels: int) -> None:
    x_CHW = random_pixels(0, height=5, width=9, channels=channels)
    options = {"lossless": True} if kind == "WEBP" else {}
    assert np.array_equal(decode(encoded(as_image(x_CHW), kind, **options), channels=channels), x_CHW)


def test_transparent_pixels_show_white_and_half_transparent_ones_blend() -> None:
    image = Image.new("RGBA", (3, 1))
    image.putdata([(0, 0, 0, 0), (40, 80, 120, 255), (0, 0, 0, 51)])
    assert decode(encoded(image))[:, 0].T.tolist() == [[255, 255, 255], [40, 80, 120], [204, 204, 204]]


def test_sixteen_bits_keep_their_high_byte() -> None:
    values = np.array([[0, 255, 256, 32768, 65535]], dtype=np.uint16)
    pgm = b"P5 5 1 65535\n" + struct.pack(">5H", *values[0])
    for source in (encoded(Image.fromarray(values)), encoded(Image.fromarray(values), "TIFF"), pgm):
        assert decode(source, channels=1).ravel().tolist() == [0, 0, 1, 128, 255]


TURNS = {
    1: lambda x: x,
    2: lambda x: x[:, :, ::-1],
    3: lambda x: x[:, ::-1, ::-1],
    4: lambda x: x[:, ::-1],
    5: lambda x: x.transpose(0, 2, 1),
    6: lambda x: np.rot90(x, -1, axes=(1, 2)),
    7: lambda x: x.transpose(0, 2, 1)[:, ::-1, ::-1],
    8: lambda x: np.rot90(x, 1, axes=(1, 2)),
}


@pytest.mark.parametrize("orientation", TURNS)
def test_exif_orientation_is_applied(orientation: int) -> None:
    x_CHW = random_pixels(5, height=4, width=6)
    exif = Image.Exif()
    exif[0x0112] = orientation
    assert np.array_equal(decode(encoded(as_image(x_CHW), exif=exif)), TURNS[orientation](x_CHW))


def photo(height: int = 75, width: int = 100, seed: int = 0) -> Image.Image:
    """Smooth shapes and a little noise, over the whole range of levels."""
    coarse = as_image(random_pixels(seed, 5, 7)).resize((width, height), Image.Resampling.BICUBIC)
    noise = np.random.default_rng(seed).integers(-9, 10, (height, width, 3))
    return Image.fromarray((np.asarray(coarse) + noise).clip(0, 255).astype(np.uint8))


def cut(source: Encoded, boxes: list[tuple[int, int, int, int]], interpolation: Interpolation, size: int) -> np.ndarray:
    pieces = [Piece(*box, interpolation) for box in boxes]
    return decode_pieces(source, "the file", lambda height, width: pieces, size=size, channels=3)


def torchvisions(image: Image.Image, box: tuple[int, int, int, int], interpolation: str, size: int) -> np.ndarray:
    return np.asarray(TF.resized_crop(image, *box, [size, size], MODES[interpolation]))


@pytest.mark.parametrize("size", [24, 64])
@pytest.mark.parametrize("interpolation", MODES)
def test_pieces_are_torchvisions_resized_crops_of_the_whole_picture(interpolation: Interpolation, size: int) -> None:
    """To a level, but for the few pixels where an overshoot is clipped between the two axes, whose order differs."""
    jpeg = encoded(photo(), "JPEG", quality=92)
    image = Image.open(io.BytesIO(jpeg))
    for box, ours in zip(BOXES, cut(jpeg, BOXES, interpolation, size), strict=True):
        theirs = torchvisions(image, box, interpolation, size)
        off = np.abs(ours.astype(int) - theirs)
        assert ours.shape == theirs.shape == (size, size, 3)
        assert off.mean() < 0.3
        assert (off > 1).mean() < (0 if interpolation == "bilinear" else 2e-3) + 1e-9, off.max()


def test_boxes_are_chosen_for_the_picture_as_it_is_turned() -> None:
    """Orientation 6: stored lying on its side, 1200 wide and 900 high; shown 900 wide and 1200 high."""
    image = photo(900, 1200)
    exif = Image.Exif()
    exif[0x0112] = 6
    seen: list[tuple[int, int]] = []

    def lower_half(height: int, width: int) -> list[Piece]:
        seen.append((height, width))
        return [Piece(height // 2, 0, height // 2, width, "bilinear")]

    expected = np.asarray(image.rotate(-90, expand=True).crop((0, 600, 900, 1200)).resize((32, 32)))
    for kind in ("PNG", "JPEG", "TIFF"):
        (piece,) = decode_pieces(encoded(image, kind, exif=exif), "it", lower_half, size=32, channels=3)
        assert np.abs(piece.astype(int) - expected).mean() < 3, kind
    assert seen == [(1200, 900)] * 3


@pytest.mark.parametrize("size", [16, 50, 100])
def test_pieces_of_a_jpeg_decoded_smaller_are_near_those_of_the_whole(size: int) -> None:
    """Within two levels on average: the decoder averages blocks, and a box is moved by up to half a pixel of them."""
    jpeg = encoded(photo(900, 1200), "JPEG", quality=95)
    boxes = [(0, 0, 900, 1200), (101, 203, 411, 433)]
    assert reduction([Piece(*box, "bicubic") for box in boxes], size) == {16: 8, 50: 4, 100: 2}[size]
    image = Image.open(io.BytesIO(jpeg))
    for box, ours in zip(boxes, cut(jpeg, boxes, "bicubic", size), strict=True):
        assert np.abs(ours.astype(int) - torchvisions(image, box, "bicubic", size)).mean() < 2


@pytest.mark.parametrize("way", [*WAYS, DEAD_LINK])
def test_every_kind_of_broken_file_has_the_same_reason_for_every_reader(tmp_path: Path, way: str) -> None:
    path = str(tmp_path / "photo.png")
    begins = write_broken(Path(path), photo(48, 48), way)
    reasons = []
    whole = ImageSet(images=[path], names=["the file"])
    for read in (partial(decode, path, size=8), partial(decode, path, size=None), partial(inspect, whole, 0)):
        with pytest.raises(BrokenImageError, match="'the file'") as caught:
            read()
        reasons.append(caught.value.reason)
    assert reasons[0] == reasons[1] == reasons[2]
    assert reasons[0].startswith(begins)


@pytest.mark.parametrize(("height", "width"), [(13_000, 13_000), (80_000_000, 1), (1, 80_000_000)])
def test_pictures_that_need_too_much_memory_are_refused(height: int, width: int) -> None:
    """Pillow only warns of 169 million pixels. A strip of 80 million would become 54 GB while it is resized."""
    tracemalloc.start()
    for reader in (decode, lambda source: peek(source, "it")):
        with pytest.raises(BrokenImageError, match="too large"):
            reader(bomb(height, width))
    assert tracemalloc.get_traced_memory()[1] < 2**22
    tracemalloc.stop()


def test_a_program_for_another_program_is_no_image() -> None:
    postscript = encoded(photo(), "EPS")
    assert postscript.startswith(b"%!PS")
    with pytest.raises(BrokenImageError, match="known format"):
        decode(postscript)


@pytest.mark.parametrize(("width", "height"), [(1, 1), (1, 5000), (20_000, 1), (4000, 3)])
@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_any_shape_becomes_a_square(width: int, height: int, kind: str) -> None:
    picture = encoded(Image.new("RGB", (width, height), (200, 100, 50)), kind)
    x_CHW = decode(picture, size=16).reshape(3, -1)
    assert np.abs(x_CHW - np.array([[200], [100], [50]])).max() <= 3


FUZZED = {kind: encoded(photo(24, 17), kind) for kind in ("PNG", "JPEG", "WEBP", "BMP", "TIFF", "PPM")}
FUZZED |= {"GIF": encoded(photo(24, 17).convert("P"), "GIF"), "16 bits": encoded(photo(24, 17).convert("I;16"), "PNG")}


@cases
@pytest.mark.parametrize("kind", FUZZED)
def test_random_damage_is_decoded_or_reported(kind: str, num_cases: int) -> None:
    def check(seed: int) -> None:
        content = damaged(FUZZED[kind], random.Random(seed))
        with suppress(BrokenImageError):
            assert decode(content, size=8).shape == (3, 8, 8)
        with suppress(BrokenImageError):
            peek(content, "x")

    for_all(num_cases, seeds, check)
