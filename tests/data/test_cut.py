"""Pieces of pictures: where they are cut, and that resizing them is what torchvision does to a Pillow crop."""

import io

import numpy as np
import pytest
import torch
from image_files import as_image, encoded, png, random_pixels
from PIL import Image

from contune.data.cut import Interpolation, Piece, reduction, whole
from contune.data.decode import Encoded, decode_image, decode_pieces
from contune.data.images import EncodedImages, TensorImages
from contune.device import torchvision
from contune.errors import UserError

TF = torchvision.transforms.functional
MODES = {
    "bilinear": torchvision.transforms.InterpolationMode.BILINEAR,
    "bicubic": torchvision.transforms.InterpolationMode.BICUBIC,
}
BOXES = [(0, 0, 75, 100), (10, 20, 40, 30), (3, 50, 17, 49), (60, 0, 15, 100), (30, 30, 24, 24)]


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


def test_a_piece_of_the_wanted_size_is_the_pixels_themselves() -> None:
    x_CHW = random_pixels(1, 30, 40)
    (piece,) = cut(png(x_CHW), [(5, 7, 16, 16)], "bicubic", 16)
    assert np.array_equal(piece.transpose(2, 0, 1), x_CHW[:, 5:21, 7:23])


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
    for kind in ("PNG", "JPEG"):
        (piece,) = decode_pieces(encoded(image, kind, exif=exif), "it", lower_half, size=32, channels=3)
        assert np.abs(piece.astype(int) - expected).mean() < 3, kind
    assert seen == [(1200, 900)] * 2


def test_a_jpeg_is_decoded_smaller_only_as_far_as_every_piece_allows() -> None:
    large, small = Piece(0, 0, 900, 1200, "bicubic"), Piece(40, 40, 130, 200, "bicubic")
    assert [reduction([large], size) for size in (500, 225, 224, 112, 56, 20)] == [1, 2, 2, 4, 8, 8]
    assert reduction([large, small], 32) == 2
    assert reduction([small], 64) == 1


@pytest.mark.parametrize("size", [16, 50, 100])
def test_pieces_of_a_jpeg_decoded_smaller_are_near_those_of_the_whole(size: int) -> None:
    """Within two levels on average: the decoder averages blocks, and a box is moved by up to half a pixel of them."""
    jpeg = encoded(photo(900, 1200), "JPEG", quality=95)
    boxes = [(0, 0, 900, 1200), (101, 203, 411, 433)]
    assert reduction([Piece(*box, "bicubic") for box in boxes], size) == {16: 8, 50: 4, 100: 2}[size]
    image = Image.open(io.BytesIO(jpeg))
    for box, ours in zip(boxes, cut(jpeg, boxes, "bicubic", size), strict=True):
        assert np.abs(ours.astype(int) - torchvisions(image, box, "bicubic", size)).mean() < 2


def test_squashing_is_the_piece_of_everything() -> None:
    source = png(random_pixels(3, 20, 30))
    squashed = decode_image(source, "it", size=8, channels=3)
    (piece,) = decode_pieces(source, "it", whole, size=8, channels=3)
    assert np.array_equal(piece.transpose(2, 0, 1), squashed)


@pytest.mark.parametrize("channels", [1, 3])
def test_pixels_in_memory_are_cut_like_files(channels: int) -> None:
    x_CHW = random_pixels(4, 20, 30)
    pieces = [Piece(2, 3, 10, 20, "bicubic"), Piece(0, 0, 20, 30, "bilinear")]
    sets = TensorImages(torch.from_numpy(x_CHW)[None]), EncodedImages([png(x_CHW)], ["it"])
    ours, theirs = (images.pieces(0, lambda height, width: pieces, 12, channels) for images in sets)
    assert np.array_equal(ours, theirs)
    assert ours.shape == (2, 12, 12, channels)


@pytest.mark.parametrize("mode", ["L", "CMYK", "P", "RGBA"])
def test_other_colours_are_cut_too(mode: str) -> None:
    image = photo().convert(mode)
    source = encoded(image, "JPEG" if mode in ("L", "CMYK") else "PNG")
    expected = decode_image(source, "it", size=None, channels=3)[:, 10:50, 20:50]
    (piece,) = cut(source, [(10, 20, 40, 30)], "bilinear", 20)
    assert np.abs(piece.mean((0, 1)) - expected.mean((1, 2))).max() < 2


def test_a_damaged_picture_is_named_and_a_fault_in_the_choice_is_not_blamed_on_it() -> None:
    for kind in ("PNG", "JPEG"):
        whole_file = encoded(photo(), kind)
        with pytest.raises(UserError, match=r"'the file' (is damaged|is not an image).*remove it"):
            cut(whole_file[: len(whole_file) // 2], BOXES[:1], "bilinear", 8)

    def fails(height: int, width: int) -> list[Piece]:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        decode_pieces(encoded(photo(), "JPEG"), "it", fails, size=8, channels=3)
