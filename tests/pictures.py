"""Image files that tests write themselves."""

from pathlib import Path

import numpy as np
from PIL import Image


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
