import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from image_files import as_image, encoded, png, random_pixels, write_png
from PIL import Image

from contune.data.decode import decode_image, peek
from contune.errors import UserError


def decode(source: str | bytes, size: int | None = None, channels: int = 3) -> np.ndarray:
    return decode_image(source, "the file", size=size, channels=channels)


@pytest.mark.parametrize("channels", [1, 3])
def test_png_comes_back_exactly(channels: int) -> None:
    x_CHW = random_pixels(0, height=5, width=9, channels=channels)
    assert np.array_equal(decode(png(x_CHW), channels=channels), x_CHW)


def test_lossless_webp_comes_back_exactly() -> None:
    x_CHW = random_pixels(1)
    assert np.array_equal(decode(encoded(as_image(x_CHW), "WEBP", lossless=True)), x_CHW)


@pytest.mark.parametrize("kind", ["BMP", "GIF", "TIFF", "PPM"])
def test_formats_without_a_signature_shortcut(kind: str) -> None:
    x_1HW = random_pixels(2, channels=1)
    assert np.array_equal(decode(encoded(as_image(x_1HW), kind), channels=1), x_1HW)


def test_gray_becomes_three_equal_channels() -> None:
    x_1HW = random_pixels(3, channels=1)
    assert np.array_equal(decode(png(x_1HW)), np.repeat(x_1HW, 3, axis=0))


def test_colour_becomes_luma() -> None:
    x_CHW = random_pixels(4)
    luma = 0.299 * x_CHW[0] + 0.587 * x_CHW[1] + 0.114 * x_CHW[2]
    assert np.abs(decode(png(x_CHW), channels=1)[0] - luma).max() <= 1


def test_palette_colours_are_looked_up() -> None:
    image = Image.new("P", (2, 1))
    image.putpalette([10, 20, 30, 200, 100, 50])
    image.putdata([0, 1])
    assert decode(encoded(image))[:, 0].T.tolist() == [[10, 20, 30], [200, 100, 50]]


def test_transparent_pixels_show_white_and_half_transparent_ones_blend() -> None:
    image = Image.new("RGBA", (3, 1))
    image.putdata([(0, 0, 0, 0), (40, 80, 120, 255), (0, 0, 0, 51)])
    assert decode(encoded(image))[:, 0].T.tolist() == [[255, 255, 255], [40, 80, 120], [204, 204, 204]]


def test_transparent_palette_entry_shows_white() -> None:
    image = Image.new("P", (2, 1))
    image.putpalette([0, 0, 0, 9, 8, 7])
    image.putdata([0, 1])
    assert decode(encoded(image, transparency=0))[:, 0].T.tolist() == [[255, 255, 255], [9, 8, 7]]


def test_gray_with_alpha() -> None:
    image = Image.new("LA", (2, 1))
    image.putdata([(77, 255), (0, 0)])
    assert decode(encoded(image), channels=1).ravel().tolist() == [77, 255]


def test_sixteen_bits_keep_their_high_byte() -> None:
    values = np.array([[0, 255, 256, 32768, 65535]], dtype=np.uint16)
    for kind in ("PNG", "TIFF"):
        assert decode(encoded(Image.fromarray(values), kind), channels=1).ravel().tolist() == [
            0,
            0,
            1,
            128,
            255,
        ]


def test_sixteen_bit_pgm() -> None:
    pgm = b"P5 3 1 65535\n" + struct.pack(">3H", 255, 32768, 65535)
    assert decode(pgm, channels=1).ravel().tolist() == [0, 128, 255]


def test_thirty_two_bit_floats_are_refused() -> None:
    image = Image.fromarray(np.ones((4, 4), dtype=np.float32))
    with pytest.raises(UserError, match=r"'the file' has 32-bit pixels.*8 or 16 bits"):
        decode(encoded(image, "TIFF"))


def test_one_bit_is_black_and_white() -> None:
    image = Image.new("1", (2, 1))
    image.putdata([0, 255])
    assert decode(encoded(image), channels=1).ravel().tolist() == [0, 255]


def test_cmyk_becomes_rgb() -> None:
    image = Image.new("CMYK", (8, 8), (0, 255, 255, 0))
    assert decode(encoded(image, "TIFF"))[:, 0, 0].tolist() == [255, 0, 0]
    jpeg = decode(encoded(image, "JPEG", quality=95)).astype(int)
    assert np.abs(jpeg - np.array([255, 0, 0])[:, None, None]).max() <= 6


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


def test_unreadable_exif_leaves_the_picture_as_stored() -> None:
    x_CHW = random_pixels(6)
    assert np.array_equal(decode(encoded(as_image(x_CHW), exif=b"Exif\0\0not a TIFF header")), x_CHW)


@pytest.mark.parametrize(("height", "width", "size"), [(40, 30, 8), (8, 8, 20), (100, 16, 16)])
def test_resize_is_an_antialiased_squash(height: int, width: int, size: int) -> None:
    x_CHW = random_pixels(7, height=height, width=width)
    weights = [_triangle(height, size), _triangle(width, size)]
    expected = np.einsum("yh,chw,xw->cyx", weights[0], x_CHW, weights[1])
    assert np.abs(decode(png(x_CHW), size=size) - expected).max() <= 1.5


def _triangle(old: int, new: int) -> np.ndarray:
    """(new, old) weights of a triangle as wide as the larger of the two pixel pitches."""
    scale = max(old / new, 1.0)
    centres = (np.arange(new) + 0.5) * old / new
    weights = np.maximum(0, 1 - np.abs((np.arange(old) + 0.5)[None] - centres[:, None]) / scale)
    normalised: np.ndarray = weights / weights.sum(1, keepdims=True)
    return normalised


def test_large_jpeg_decoded_small_is_near_the_full_decode() -> None:
    smooth = as_image(random_pixels(8)).resize((1200, 900), Image.Resampling.BICUBIC)
    jpeg = encoded(smooth, "JPEG", quality=95)
    full = np.asarray(Image.open(io.BytesIO(jpeg)).resize((64, 64), Image.Resampling.BILINEAR))
    assert np.abs(decode(jpeg, size=64).astype(int) - full.transpose(2, 0, 1)).mean() < 1


def test_text_named_jpg_is_named(tmp_path: Path) -> None:
    path = tmp_path / "cat.jpg"
    path.write_text("these are not pixels")
    with pytest.raises(UserError, match=r"cat\.jpg' is not an image in a known format; remove it"):
        decode_image(str(path), str(path), size=8, channels=3)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
def test_truncated_file_is_named(kind: str) -> None:
    whole = encoded(as_image(random_pixels(9, height=64, width=64)), kind)
    with pytest.raises(UserError, match=r"'the file' (is damaged|is not an image).*remove it"):
        decode(whole[: len(whole) // 2])


def test_empty_file_is_named() -> None:
    with pytest.raises(UserError, match="'the file' is not an image"):
        decode(b"")


def test_missing_file_is_named() -> None:
    with pytest.raises(UserError, match="cannot read image 'the file': No such file"):
        decode("nowhere/at/all.png")


def test_decompression_bomb_is_refused() -> None:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    bomb = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")
    for reader in (decode, lambda source: peek(source, "the file")):
        with pytest.raises(UserError, match=r"'the file' is too large to decode safely \(over 89,478,485 pixels"):
            reader(bomb)


def test_other_channel_counts_are_refused() -> None:
    with pytest.raises(UserError, match=r"2 channels asked for; .* 1 \(gray\) or 3 \(RGB\)"):
        decode(png(random_pixels(0)), channels=2)


def test_peek_tells_the_shorter_side_and_gray(tmp_path: Path) -> None:
    write_png(tmp_path / "a.png", random_pixels(0, height=5, width=9))
    assert peek(str(tmp_path / "a.png"), "a") == (5, False)
    assert peek(png(random_pixels(0, height=12, width=9, channels=1)), "b") == (9, True)
    assert peek(encoded(Image.fromarray(np.zeros((4, 4), dtype=np.uint16))), "c") == (4, True)
