"""The encoder file that a run leaves: weights, how to build the network, and how to prepare images for it."""

import json
from dataclasses import asdict, dataclass
from math import isfinite
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from contune.data.augment import eval_transform
from contune.errors import UserError
from contune.files import whole_file
from contune.models.encoders import build_encoder

ENCODER_FILE = "encoder.safetensors"
LARGEST = 8192
"""Pixels a side: beyond it a file is mistaken about its images."""


@dataclass(frozen=True, kw_only=True)
class EncoderSpec:
    """All that is needed to build an encoder again and feed it."""

    encoder: str
    stem: str
    norm: str
    image_size: int
    channels: int
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def check(self) -> None:
        """Whether a network can be built of this; a file may say anything."""
        if not all(isinstance(text, str) for text in (self.encoder, self.stem, self.norm)):
            raise UserError("encoder, stem and norm are names")
        if self.channels not in (1, 3) or not isinstance(self.image_size, int) or not 1 <= self.image_size <= LARGEST:
            raise UserError(f"it has {self.channels!r} channels of {self.image_size!r} pixels a side")
        numbers = (*self.mean, *self.std)
        if len(numbers) != 2 * self.channels or not all(map(isfinite, numbers)) or min(self.std) <= 0:
            raise UserError(f"mean {self.mean} and deviation {self.std} do not fit {self.channels} channels")

    def build(self) -> nn.Module:
        return build_encoder(
            self.encoder, channels=self.channels, image_size=self.image_size, stem=self.stem, norm=self.norm
        )


class ImageEncoder(nn.Module):
    """A trained encoder with its preprocessing: images in, features (N, num_features) out.

    `encoder(images)` takes uint8 images (N, channels, H, W) of any size and prepares them itself, or floats
    that are already of `spec.image_size` and normalised with `spec.mean` and `spec.std`.
    """

    def __init__(self, backbone: nn.Module, spec: EncoderSpec) -> None:
        super().__init__()
        self.backbone = backbone
        self.spec = spec
        self.num_features = int(backbone.num_features)  # type: ignore[arg-type]  # timm models all carry it

    def prepare(self, images_NCHW: Tensor) -> Tensor:
        """uint8 images as the encoder wants them: resized, scaled to 0..1, normalised, of the type of its weights."""
        self._check(images_NCHW)
        if images_NCHW.dtype != torch.uint8:
            raise UserError(
                f"only uint8 images of 0 to 255 can be prepared, got {images_NCHW.dtype}; floats that are resized and "
                "normalised already go to the encoder itself"
            )
        x_NCHW = eval_transform(images_NCHW, self.spec.image_size, self.spec.mean, self.spec.std)
        return x_NCHW.to(self._dtype())

    def forward(self, images_NCHW: Tensor) -> Tensor:
        self._check(images_NCHW)
        if not (images_NCHW.dtype == torch.uint8 or images_NCHW.is_floating_point()):
            raise UserError(
                f"images must be uint8 of 0 to 255, or floats as encoder.prepare makes them of these, "
                f"got {images_NCHW.dtype}; images.to(torch.uint8) makes the former"
            )
        x_NCHW = self.prepare(images_NCHW) if images_NCHW.dtype == torch.uint8 else images_NCHW
        features_ND: Tensor = self.backbone(x_NCHW)
        return features_ND

    def _check(self, images_NCHW: Tensor) -> None:
        if not isinstance(images_NCHW, Tensor):
            raise UserError(
                f"images must be a tensor (N, {self.spec.channels}, H, W), got a {type(images_NCHW).__name__}; "
                "torch.from_numpy makes one of an array, and `contune.embed` reads files"
            )
        if torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call]  # sizes are tensors then: a warning
            return
        if images_NCHW.dim() != 4 or images_NCHW.shape[1] != self.spec.channels:
            raise UserError(f"images must be (N, {self.spec.channels}, H, W), got shape {tuple(images_NCHW.shape)}")

    def _dtype(self) -> torch.dtype:
        """Of the weights; a replica in `DataParallel` and a quantised network have none to ask."""
        for weight in self.backbone.parameters():
            return weight.dtype
        return torch.float32


def save_encoder(path: Path, backbone: nn.Module, spec: EncoderSpec) -> None:
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in backbone.state_dict().items()}
    content = save(tensors, metadata={"contune": json.dumps(asdict(spec))})
    with whole_file(path) as part:
        part.write_bytes(content)


def load_encoder(path: str | Path) -> ImageEncoder:
    """The encoder of a run folder or of an `encoder.safetensors`, in evaluation mode, on the CPU."""
    if not isinstance(path, str | Path):
        raise UserError(f"an encoder is loaded from a run folder or its {ENCODER_FILE}, got a {type(path).__name__}")
    file = Path(path)
    file = file / ENCODER_FILE if file.is_dir() else file
    if not file.exists():
        from contune.run import one_of_them  # run.py imports this module

        way_out = one_of_them(Path(path)) or "a run folder has one once its training has ended"
        raise UserError(f"no encoder at {file}; {way_out}")
    try:
        with safe_open(file, framework="pt") as opened:
            metadata: dict[str, str] = opened.metadata() or {}
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118  (not a dict)
    except SafetensorError as error:
        raise UserError(f"{file} cannot be read as safetensors: {error}") from None
    spec = _spec(metadata, file)
    backbone = spec.build()
    try:
        backbone.load_state_dict(tensors)
    except RuntimeError:
        raise UserError(f"the weights in {file} do not fit the {spec.encoder} that it describes") from None
    return ImageEncoder(backbone, spec).eval()


def _spec(metadata: dict[str, str], file: Path) -> EncoderSpec:
    if "contune" not in metadata:
        raise UserError(f"{file} holds weights but no contune description; it was not written by a contune run")
    try:
        values: dict[str, Any] = json.loads(metadata["contune"])
        values["mean"], values["std"] = tuple(map(float, values["mean"])), tuple(map(float, values["std"]))
        spec = EncoderSpec(**values)
        spec.check()
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise UserError(f"the description in {file} is not one that contune wrote: {error}") from None
    return spec
