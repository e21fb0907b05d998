"""Small encoders to export, in folders such as a run leaves, and real images for them."""

from pathlib import Path

import torch
from sklearn.datasets import load_digits, load_sample_images
from torch import Tensor

from contune.data.augment import resize
from contune.models import EncoderSpec, ImageEncoder, save_encoder
from contune.models.saved import ENCODER_FILE


def spec(encoder: str, *, size: int, channels: int, stem: str = "auto", norm: str = "batch") -> EncoderSpec:
    mean, std = (0.31, 0.42, 0.53)[:channels], (0.21, 0.24, 0.27)[:channels]
    return EncoderSpec(encoder=encoder, stem=stem, norm=norm, image_size=size, channels=channels, mean=mean, std=std)


SPECS = {
    "small stem, colour": spec("resnet18", size=32, channels=3),
    "small stem, gray": spec("resnet-mini", size=8, channels=1),
    "usual stem, colour": spec("resnet18", size=72, channels=3, stem="imagenet"),
    "usual stem, gray": spec("resnet-mini", size=32, channels=1, stem="imagenet"),
    "vision transformer, colour": spec("vit_tiny_patch16_224", size=32, channels=3),
    "vision transformer, gray": spec("vit_tiny_patch16_224", size=32, channels=1),
}


def write_run(folder: Path, of: EncoderSpec) -> ImageEncoder:
    """A folder with an encoder whose batch-norm has seen images, so that its statistics are not those of a new one."""
    torch.manual_seed(0)
    encoder = ImageEncoder(of.build(), of).train()
    for _ in range(3):
        encoder(real_images(of.image_size, of.channels))
    encoder.eval()
    folder.mkdir(parents=True, exist_ok=True)
    save_encoder(folder / ENCODER_FILE, encoder.backbone, of)
    return encoder


def real_images(size: int, channels: int) -> Tensor:
    """uint8 (6, channels, size, size): digits where they are gray, else photos."""
    if channels == 1:
        x_NHW = torch.from_numpy(load_digits().images[:6]).mul(255 / 16).round().to(torch.uint8)
        return resize(x_NHW[:, None], size)
    photos_NHWC = torch.stack([torch.from_numpy(photo.copy()) for photo in load_sample_images().images])
    return resize(torch.cat(photos_NHWC.permute(0, 3, 1, 2)[..., :639].split(213, dim=3)), size)
