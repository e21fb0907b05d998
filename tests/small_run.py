"""A small method, and a run folder whose encoder was never trained, with images: enough for all but training."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pictures import png as encode_png
from pictures import random_pixels, write_png

from contune.methods import find_method
from contune.methods.base import Method
from contune.models import EncoderSpec, ImageEncoder, load_encoder, save_encoder
from contune.models.saved import CLASSIFIER_FILE, Classifier, save_classifier

SPEC = EncoderSpec(encoder="resnet-mini", stem="auto", norm="batch", image_size=8, channels=1, mean=(0.5,), std=(0.25,))
CLASSES = ("cat", "dog", "eel")


def small_method(name: str, **settings: Any) -> Method:
    """For four classes, always with the same weights."""
    torch.manual_seed(0)
    encoder, method = SPEC.build(), find_method(name)
    return method(encoder, int(encoder.num_features), 4, method.Settings(**settings))  # type: ignore[arg-type]  # timm models carry an int


def write_run(folder: Path, *, seed: int = 0) -> Path:
    spec = replace(SPEC, channels=3, mean=(0.5,) * 3, std=(0.25,) * 3)
    torch.manual_seed(seed)
    backbone = spec.build()
    folder.mkdir(parents=True)
    save_encoder(folder / "encoder.safetensors", backbone, spec)
    linear = torch.nn.Linear(int(backbone.num_features), len(CLASSES))  # type: ignore[arg-type]  # timm models carry an int
    made = Classifier(weight_KD=linear.weight, bias_K=linear.bias, class_names=CLASSES, measure="linear-fast")
    save_classifier(folder / CLASSIFIER_FILE, made)
    return folder


def pixels(number: int) -> np.ndarray:
    """uint8 (8, 8, 3), the size that the encoder takes."""
    return np.ascontiguousarray(random_pixels(number).transpose(1, 2, 0))


def png(number: int) -> bytes:
    return encode_png(random_pixels(number))


def write_images(folder: Path, num: int = 30) -> Path:
    """`folder/cat/000.png`, `folder/dog/001.png`, …"""
    for number in range(num):
        write_png(folder / CLASSES[number % 3] / f"{number:03}.png", random_pixels(number))
    return folder


def in_order(num: int = 30) -> list[int]:
    """The numbers of the images of `write_images` in the order of their paths."""
    return sorted(range(num), key=lambda number: (number % 3, number))


def expected(run: Path, numbers: list[int]) -> np.ndarray:
    """The embeddings of these images, by the encoder alone."""
    encoder: ImageEncoder = load_encoder(run)
    x_NCHW = np.stack([random_pixels(number) for number in numbers])
    with torch.no_grad():
        features: np.ndarray = encoder(torch.from_numpy(x_NCHW)).numpy()
    return features
