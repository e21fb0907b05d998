"""Ten ways in which an image file is broken, each made out of a whole one."""

import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
from image_files import encoded
from PIL import Image

Damage = Callable[[Path, Image.Image], None]


def bomb(side: int = 60_000) -> bytes:
    """A PNG of a few bytes that says it has `side`² pixels."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


def _bytes(content: bytes) -> Damage:
    def damage(path: Path, image: Image.Image) -> None:
        path.write_bytes(content)

    return damage


def _half(kind: str, keep: float = 0.5) -> Damage:
    def damage(path: Path, image: Image.Image) -> None:
        content = encoded(image, kind)
        path.write_bytes(content[: int(len(content) * keep)])

    return damage


def _flipped(path: Path, image: Image.Image) -> None:
    """A PNG whose pixels were overwritten on the disk: the check sum is wrong."""
    content = bytearray(encoded(image))
    start = content.index(b"IDAT") + 8
    content[start : start + 8] = b"\xaa" * 8
    path.write_bytes(bytes(content))


def _not_finite(path: Path, image: Image.Image) -> None:
    pixels = np.asarray(image.convert("F")).copy()
    pixels[0, 0] = np.nan
    Image.fromarray(pixels).save(path, "TIFF")


WAYS: dict[str, tuple[Damage, str]] = {
    "empty": (_bytes(b""), "is not an image"),
    "text": (_bytes(b"<html>404 not found</html>"), "is not an image"),
    "half a jpeg": (_half("JPEG"), "is damaged"),
    "half a png": (_half("PNG"), "is damaged"),
    "half a webp": (_half("WEBP"), "is "),
    "a header alone": (_half("JPEG", 0.05), "is "),
    "overwritten": (_flipped, "is damaged"),
    "a bomb": (_bytes(bomb()), "is too large to decode safely"),
    "not finite": (_not_finite, "has 32-bit pixels, some of them not finite"),
    "a dead link": (lambda path, image: os.symlink("gone.png", path), "cannot be read: a link that leads nowhere"),
}
"""Per way what makes such a file, and how the reason begins."""
