"""Small pictures that the data tests write themselves, so that every expected pixel is known."""

import io
from pathlib import Path

import numpy as np
from PIL import Image


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
