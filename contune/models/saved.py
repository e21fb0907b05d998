"""The files of a trained encoder: encoder.safetensors and classifier.safetensors. Loading them never unpickles.

Shapes: N images, C channels, D features, K classes.
"""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from math import isfinite
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from contune.data.augment import eval_transform
from contune.data.decode import RESIZES
from contune.data.images import distinct
from contune.errors import UserError
from contune.files import atomic_file
from contune.models.encoders import build_encoder

ENCODER_FILE, CLASSIFIER_FILE = "encoder.safetensors", "classifier.safetensors"
LARGEST_IMAGE = 8192
"""Pixels per side. A file that claims more is damaged."""
_DIGEST = "sha256"
_DAMAGED = (SafetensorError, OSError, ValueError, TypeError, KeyError, RecursionError)


@dataclass(frozen=True, kw_only=True)
class EncoderSpec:
    """What it takes to rebuild an encoder and prepare images for it."""

    encoder: str
    stem: str
    norm: str
    image_size: int
    channels: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    resize: str = "squash"
    """How images become squares: a key of `RESIZES`."""
    bits: int = 16
    """How many bits the 16-bit files of its data use."""

    def build(self) -> nn.Module:
        return build_encoder(
            self.encoder, channels=self.channels, image_size=self.image_size, stem=self.stem, norm=self.norm
        )


class ImageEncoder(nn.Module):
    """A trained encoder with its preprocessing: images in, features (N, num_features) out.

    `encoder(images)` takes uint8 images (N, channels, H, W) of any size and prepares them itself. It also takes floats
    that are already resized to `spec.image_size` and normalized with `spec.mean` and `spec.std`.
    """

    def __init__(self, backbone: nn.Module, spec: EncoderSpec) -> None:
        super().__init__()
        self.backbone = backbone
        self.spec = spec
        self.num_features = int(backbone.num_features)  # type: ignore[arg-type]  # all timm models have it

    def prepare(self, images_NCHW: Tensor) -> Tensor:
        """uint8 images resized, scaled to 0..1, normalized, and in the dtype of the weights."""
        self._check(images_NCHW)
        if images_NCHW.dtype != torch.uint8:
            raise UserError(
                f"prepare takes uint8 images of 0 to 255, got {images_NCHW.dtype}. Pass prepared images to the encoder "
                "itself."
            )
        height, width = images_NCHW.shape[2:]
        (box,) = RESIZES[self.spec.resize](height, width)
        bars = (-box.left, box.left + box.width - width, -box.top, box.top + box.height - height)
        x_NCHW = eval_transform(
            F.pad(images_NCHW, bars) if any(bars) else images_NCHW, self.spec.image_size, self.spec.mean, self.spec.std
        )
        weight = next(self.backbone.parameters(), None)  # None in a replica of DataParallel or a quantized network
        return x_NCHW if weight is None else x_NCHW.to(weight.dtype)

    def forward(self, images_NCHW: Tensor) -> Tensor:
        self._check(images_NCHW)
        x_NCHW = self.prepare(images_NCHW) if images_NCHW.dtype == torch.uint8 else images_NCHW
        features_ND: Tensor = self.backbone(x_NCHW)
        return features_ND

    def _check(self, images_NCHW: Tensor) -> None:
        wanted = f"images must be a uint8 or float tensor (N, {self.spec.channels}, H, W)"
        if not isinstance(images_NCHW, Tensor):
            raise UserError(f"{wanted}, got a {type(images_NCHW).__name__}. `contune.embed` reads image files.")
        is_number = images_NCHW.dtype == torch.uint8 or images_NCHW.is_floating_point()
        if images_NCHW.dim() != 4 or images_NCHW.shape[1] != self.spec.channels or not is_number:
            raise UserError(f"{wanted}, got {images_NCHW.dtype} of shape {tuple(images_NCHW.shape)}.")


def save_encoder(path: Path, backbone: nn.Module, spec: EncoderSpec) -> None:
    _write(path, backbone.state_dict(), asdict(spec))


def load_encoder(path: str | Path) -> ImageEncoder:
    """The encoder of a run folder, an export, or an `encoder.safetensors`, in evaluation mode, on the CPU."""
    if not isinstance(path, str | Path):
        raise UserError(f"load_encoder takes a run folder or its {ENCODER_FILE}, got a {type(path).__name__}.")
    file = Path(path)
    file = file / ENCODER_FILE if file.is_dir() else file
    if not file.exists():
        from contune.run import hint_at_seeds  # run.py imports this module

        fix = hint_at_seeds(Path(path)) or "A run folder has one after training."
        raise UserError(f"no encoder at {file}. {fix}")
    try:
        tensors, about = _read(file)
        spec = _checked_spec(about)
    except _DAMAGED as error:
        raise UserError(f"{file} is damaged or not an encoder that contune wrote: {error}") from None
    backbone = spec.build()
    try:
        backbone.load_state_dict(tensors)
    except RuntimeError:
        raise UserError(f"the weights in {file} do not fit the {spec.encoder} that it describes.") from None
    return ImageEncoder(backbone, spec).eval()


def _checked_spec(about: dict[str, Any]) -> EncoderSpec:
    """A spec from a file, which may contain anything."""
    spec = EncoderSpec(**{**about, "mean": tuple(map(float, about["mean"])), "std": tuple(map(float, about["std"]))})
    numbers = (*spec.mean, *spec.std)
    if not (
        all(isinstance(name, str) for name in (spec.encoder, spec.stem, spec.norm))
        and spec.channels in (1, 3)
        and spec.image_size in range(1, LARGEST_IMAGE + 1)
        and spec.resize in RESIZES
        and spec.bits in range(8, 17)
        and len(numbers) == 2 * spec.channels
        and all(map(isfinite, numbers))
        and min(spec.std) > 0
    ):
        raise ValueError(f"{spec} is not possible")
    return spec


@dataclass(frozen=True, kw_only=True, eq=False)
class Classifier:
    """A linear classifier on the features, with the names of its classes."""

    weight_KD: Tensor
    bias_K: Tensor
    class_names: tuple[str, ...]
    measure: str
    """The measure it comes from: `linear`, `linear-fast`, or `classifier` if it was trained with the encoder."""

    def probabilities(self, features_ND: Tensor) -> Tensor:
        """(N, K)"""
        return torch.softmax(features_ND.float() @ self.weight_KD.T + self.bias_K, dim=1)

    def predict(self, features_ND: Tensor) -> Tensor:
        """The index of the most probable class of each image, (N,)."""
        return (features_ND.float() @ self.weight_KD.T + self.bias_K).argmax(dim=1)


def save_classifier(path: Path, classifier: Classifier) -> None:
    tensors = {"weight": classifier.weight_KD.float(), "bias": classifier.bias_K.float()}
    _write(path, tensors, {"class_names": classifier.class_names, "measure": classifier.measure})


def load_classifier(run: Path) -> Classifier:
    file = run / CLASSIFIER_FILE
    if not file.exists():
        raise UserError(
            f"{run} has no {CLASSIFIER_FILE}: it was trained without labels or evaluated without a linear probe. "
            f"`contune eval {run} eval.linear=fast` writes one if its data has labels; otherwise add data.path=FOLDER "
            "with labeled images."
        )
    try:
        tensors, about = _read(file)
        return Classifier(
            weight_KD=tensors["weight"],
            bias_K=tensors["bias"],
            class_names=distinct(map(str, about["class_names"])),
            measure=str(about["measure"]),
        )
    except _DAMAGED as error:
        raise UserError(f"{file} is damaged or not a classifier that contune wrote: {error}") from None


def _write(path: Path, tensors: dict[str, Tensor], about: dict[str, Any]) -> None:
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    text = json.dumps(about)
    content = save(tensors, metadata={"contune": text, _DIGEST: _digest(tensors, text)})
    with atomic_file(path) as part:
        part.write_bytes(content)


def _read(file: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors of a file and the description that contune wrote with them."""
    with safe_open(file, framework="pt") as opened:
        metadata = opened.metadata() or {}
        tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118  (not a dict)
    if metadata.get(_DIGEST) not in (None, _digest(tensors, metadata["contune"])):  # older files have none
        raise ValueError("its checksum does not match; copy it again")
    return tensors, json.loads(metadata["contune"])


def _digest(tensors: dict[str, Tensor], about: str) -> str:
    digest = hashlib.sha256(about.encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Evaluation mode inside; afterwards each part of the module has its own mode again."""
    in_training = [part for part in module.modules() if part.training]
    module.eval()
    try:
        yield
    finally:
        for part in in_training:
            part.training = True
