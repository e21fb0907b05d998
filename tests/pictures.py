"""Picture files that tests write themselves, so that every expected pixel is known; whole ones and broken ones."""

import io
import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from contune.data import ImageSet


def write_picture(path: Path, *, seed: int, size: int = 12, gray: bool = False, tint: int = 0) -> None:
    """Noise, brighter by `tint`, in the format that the name asks for."""
    shape = (size, size) if gray else (size, size, 3)
    pixels = np.random.default_rng(seed).integers(0, 100, shape) + tint
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels.astype(np.uint8)).save(path)


def write_classes(folder: Path, *, num_classes: int = 2, each: int = 12, gray: bool = False) -> Path:
    """`folder/class0/0.png`, …: classes that differ in brightness."""
    for label in range(num_classes):
        for number in range(each):
            path = folder / f"class{label}" / f"{number}.png"
            write_picture(path, seed=100 * label + number, gray=gray, tint=label * 150 // (num_classes - 1))
    return folder


def write_flat(folder: Path, num: int = 24) -> Path:
    for number in range(num):
        write_picture(folder / f"{number}.png", seed=number, tint=number % 2 * 150)
    return folder


def random_pixels(seed: int, height: int = 8, width: int = 8, channels: int = 3) -> np.ndarray:
    """uint8 (C, H, W)"""
    return np.random.default_rng(seed).integers(0, 256, (channels, height, width), dtype=np.uint8)


def as_image(x_CHW: np.ndarray) -> Image.Image:
    return Image.fromarray(x_CHW[0] if len(x_CHW) == 1 else np.ascontiguousarray(x_CHW.transpose(1, 2, 0)))


def encoded(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def png(x_CHW: np.ndarray) -> bytes:
    return encoded(as_image(x_CHW))


def write_png(path: Path, x_CHW: np.ndarray) -> np.ndarray:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(png(x_CHW))
    return x_CHW


def labels_of(images: ImageSet | None) -> list[Any]:
    """Of a split that exists and has labels, integers or rows of a matrix."""
    assert images is not None
    assert images.labels is not None
    labels: list[Any] = images.labels.tolist()
    return labels


def bomb(height: int = 60_000, width: int = 60_000) -> bytes:
    """A PNG of a few bytes that claims to have this many pixels."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


def _half(kind: str, keep: float = 0.5) -> Callable[[Image.Image], bytes]:
    def content(image: Image.Image) -> bytes:
        whole = encoded(image, kind)
        return whole[: int(len(whole) * keep)]

    return content


def _overwritten(image: Image.Image) -> bytes:
    """A PNG whose pixels were overwritten on the disk: the check sum is wrong."""
    content = bytearray(encoded(image))
    start = content.index(b"IDAT") + 8
    content[start : start + 8] = b"\xaa" * 8
    return bytes(content)


WAYS: dict[str, tuple[Callable[[Image.Image], bytes], str]] = {
    "empty": (lambda image: b"", "is not an image"),
    "text": (lambda image: b"<html>404 not found</html>", "is not an image"),
    "half a jpeg": (_half("JPEG"), "is damaged"),
    "half a png": (_half("PNG"), "is damaged"),
    "half a webp": (_half("WEBP"), "is "),
    "a header alone": (_half("JPEG", 0.05), "is "),
    "overwritten": (_overwritten, "is damaged"),
    "a bomb": (lambda image: bomb(), "is too large to decode safely"),
}
"""How files are broken: the content for an image, and how the reason begins. In DEAD_LINK there is no file."""
DEAD_LINK = "a dead link"


def write_broken(path: Path, image: Image.Image, way: str) -> str:
    """Writes a broken file, and returns how the reason begins."""
    if way == DEAD_LINK:
        os.symlink("gone.png", path)
        return "cannot be read"
    content, reason = WAYS[way]
    path.write_bytes(content(image))
    return reason
