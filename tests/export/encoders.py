"""Small encoders to export, in folders like a run's, real images for them, and the Python of a model card."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits, load_sample_images
from torch import Tensor

from contune.data.augment import resize
from contune.models.saved import ENCODER_FILE, EncoderSpec, ImageEncoder, save_encoder


def spec(encoder: str, *, size: int, channels: int, stem: str = "auto", norm: str = "batch") -> EncoderSpec:
    mean, std = ((0.31, 0.42, 0.53) * 3)[:channels], ((0.21, 0.24, 0.27) * 3)[:channels]
    return EncoderSpec(encoder=encoder, stem=stem, norm=norm, image_size=size, channels=channels, mean=mean, std=std)


SMALL_GRAY = spec("resnet-mini", size=8, channels=1)
SPECS = {
    "small stem, color": spec("resnet-mini", size=16, channels=3),
    "small stem, gray": SMALL_GRAY,
    "usual stem, color": spec("resnet18", size=72, channels=3, stem="imagenet"),
    "vision transformer, gray": spec("test_vit", size=32, channels=1),
    "small stem, six channels": spec("resnet-mini", size=8, channels=6),
}


def write_run(folder: Path, of: EncoderSpec) -> ImageEncoder:
    """A folder with an encoder whose batch-norm has seen images, so that its statistics are not the initial ones."""
    torch.manual_seed(0)
    encoder = ImageEncoder(of.build(), of).train()
    encoder(real_images(of.image_size, of.channels))
    encoder.eval()
    folder.mkdir(parents=True, exist_ok=True)
    save_encoder(folder / ENCODER_FILE, encoder.backbone, of)
    return encoder


def real_images(size: int, channels: int) -> Tensor:
    """uint8 (6, channels, size, size): digits if gray, else photos, whose colors may repeat."""
    if channels == 1:
        x_NHW = torch.from_numpy(load_digits().images[:6]).mul(255 / 16).round().to(torch.uint8)
        return resize(x_NHW[:, None], size)
    photos_NHWC = torch.stack([torch.from_numpy(photo.copy()) for photo in load_sample_images().images])
    photos_NHWC = photos_NHWC[..., torch.arange(channels) % 3]
    return resize(torch.cat(photos_NHWC.permute(0, 3, 1, 2)[..., :639].split(213, dim=3)), size)


def write_photo(folder: Path, image_CHW: Tensor) -> None:
    pixels = image_CHW[0].numpy() if len(image_CHW) == 1 else image_CHW.permute(1, 2, 0).numpy()
    if len(image_CHW) in (1, 3):
        Image.fromarray(pixels).save(folder / "photo.png")
    else:
        np.save(folder / "image.npy", pixels)


def features_of_the_photo(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """Runs the Python of the card inside the folder, as a reader would: the `features` of each block."""
    monkeypatch.chdir(folder)
    blocks = re.findall(r"^```python\n(.*?)^```$", (folder / "README.md").read_text(), flags=re.MULTILINE | re.DOTALL)
    assert blocks
    found = []
    for number, block in enumerate(blocks):
        names: dict[str, Any] = {}
        exec(compile(block, f"{folder}/README.md, block {number}", "exec"), names)
        found.append(torch.as_tensor(names["features"]))
    return found
