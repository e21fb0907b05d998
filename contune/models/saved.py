"""The files of a trained encoder, encoder.safetensors and classifier.safetensors, and weights to start from.

Loading never unpickles.

Shapes: N images, C channels, D features, K classes.
"""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from math import isfinite
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
import torch.nn.functional as F
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from contune import device
from contune.config import MOST_CHANNELS
from contune.data.augment import eval_transform
from contune.data.decode import RESIZES, Ranges
from contune.data.images import distinct
from contune.errors import UserError
from contune.files import atomic_file
from contune.hub import local
from contune.models.encoders import OWN_MODULE, build_encoder, has_small_stem
from contune.models.timm_stem import stem_from_timm
from contune.settings import annotations_of, check, one_of, parse, ranged

ENCODER_FILE, CLASSIFIER_FILE = "encoder.safetensors", "classifier.safetensors"
TIMM_FILE = "model.safetensors"
"""The encoder file of an export for timm."""
DIGEST = "sha256"
_DAMAGED = (SafetensorError, OSError, ValueError, TypeError, KeyError, RecursionError)


@dataclass(frozen=True, kw_only=True)
class EncoderSpec:
    """What it takes to rebuild an encoder and prepare images for it."""

    encoder: str
    stem: str
    norm: str
    image_size: int = field(metadata={"low": 1, "high": 8192})
    channels: int = field(metadata={"low": 1, "high": MOST_CHANNELS})
    mean: tuple[float, ...]
    std: tuple[float, ...]
    resize: str = one_of("squash", tuple(RESIZES))
    """How images become squares: a key of `RESIZES`."""
    bits: int = ranged(16, low=8, high=16)
    """How many bits the 16-bit files of its data use."""
    ranges: Ranges = ()
    """Which values become 0 and 255, if its data are floats or other arrays."""

    def build(self, own: nn.Module | None = None) -> nn.Module:
        """The encoder with new weights, or a copy of a module of your own."""
        return build_encoder(
            self.encoder, channels=self.channels, image_size=self.image_size, stem=self.stem, norm=self.norm, own=own
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
        if images_NCHW.dtype != torch.uint8:
            raise UserError(f"prepare takes uint8 images, got {images_NCHW.dtype}; pass prepared ones to the encoder")
        height, width = images_NCHW.shape[2:]
        (box,) = RESIZES[self.spec.resize](height, width)
        bars = (-box.left, box.left + box.width - width, -box.top, box.top + box.height - height)
        x_NCHW = eval_transform(
            F.pad(images_NCHW, bars) if any(bars) else images_NCHW, self.spec.image_size, self.spec.mean, self.spec.std
        )
        weight = next(self.backbone.parameters(), None)  # None in a replica of DataParallel or a quantized network
        return x_NCHW if weight is None else x_NCHW.to(weight.dtype)

    def forward(self, images_NCHW: Tensor) -> Tensor:
        if images_NCHW.dim() != 4 or images_NCHW.shape[1] != self.spec.channels:
            raise UserError(f"images must be (N, {self.spec.channels}, H, W), got {tuple(images_NCHW.shape)}")
        x_NCHW = self.prepare(images_NCHW) if images_NCHW.dtype == torch.uint8 else images_NCHW
        features_ND: Tensor = self.backbone(x_NCHW)
        return features_ND


def save_encoder(path: Path, backbone: nn.Module, spec: EncoderSpec) -> None:
    _write(path, backbone.state_dict(), asdict(spec))


def load_encoder(path: str | Path, encoder: nn.Module | None = None) -> ImageEncoder:
    """The encoder of a run folder, an export, or an `encoder.safetensors`, in evaluation mode, on the CPU.

    `hf:OWNER/NAME` is an export on the Hugging Face Hub. A name of `results/models.json` is a model of the collection,
    in the folder `models` or the one that CONTUNE_MODELS names.
    encoder: if the run trained a module of your own, such a module. A copy of it gets the trained weights.
    """
    folder = file = local(path)
    if folder.is_dir():
        names = [name for name in (ENCODER_FILE, TIMM_FILE) if (folder / name).exists()]
        file = folder / (names or [ENCODER_FILE])[0]
    if not file.exists():
        from contune.run import hint_at_seeds  # run.py imports this module

        fix = hint_at_seeds(Path(path)) or "a run folder has one after training"
        raise UserError(f"no encoder at {file}; {fix}")
    try:
        tensors, about = _read(file)
        spec = _checked_spec(about)
    except _DAMAGED as error:
        raise UserError(f"{file} is damaged or not an encoder that contune wrote: {error}") from None
    backbone = spec.build(encoder)
    try:
        if has_small_stem(backbone) and "maxpool.0.weight" in tensors:
            tensors = stem_from_timm(tensors, spec.channels)
        backbone.load_state_dict(tensors)
    except (RuntimeError, KeyError, IndexError):
        raise UserError(f"the weights in {file} do not fit the {spec.encoder} that it describes.") from None
    return ImageEncoder(backbone, spec).eval()


def own_name(module: nn.Module) -> str:
    """`module:SmallNet-1a2b3c4d`, with a digest of its weights: other weights to start from make another run."""
    return f"{OWN_MODULE}{type(module).__name__}-{_digest(module.state_dict(), '')[:8]}"


def find_weights(source: str, encoder: str) -> ImageEncoder:
    """The encoder to start training from: a run folder, an export, one on the hub, a name of timm's, or a state dict.

    Only a file with a state dict needs to be told which `encoder` it fits.
    """
    path = local(source)
    ours = path.is_dir()
    with suppress(*_DAMAGED), safe_open(path, framework="pt") as opened:
        ours = "contune" in (opened.metadata() or {})
    found = load_encoder(path) if ours else _state_dict(path, encoder) if path.exists() else _timm_weights(source)
    found.spec = replace(found.spec, stem="cifar" if has_small_stem(found.backbone) else "imagenet")
    return found


def _timm_weights(name: str) -> ImageEncoder:
    if not device.timm.is_model_pretrained(name):
        raise UserError(f"model.weights={name} is neither a file, a run folder nor one of timm.list_pretrained()")
    try:
        model = device.timm.create_model(name, pretrained=True, num_classes=0)
    except Exception as error:  # from the hub, the network and the files of its cache
        reason, fix = " ".join(str(error).split())[:200], f"model.weights=FILE model.encoder={name.partition('.')[0]}"
        place = f"model.safetensors from huggingface.co/timm/{name}"
        raise UserError(f"timm cannot load {name}: {reason}. Without a network, download {place}; set {fix}") from None
    return _with_timm_spec(model, model.pretrained_cfg["architecture"])


def _state_dict(file: Path, encoder: str) -> ImageEncoder:
    """Of `encoder` in timm, with or without its classifier, as other programs save it."""
    try:
        found = device.timm.models.load_state_dict(file, weights_only=True)
        found = found.get("model_state_dict", found)
    except (*_DAMAGED, AttributeError, RuntimeError, EOFError, UnpicklingError):
        raise UserError(f"{file} holds no state dict. Write one with torch.save(model.state_dict(), FILE).") from None
    model = build_encoder(encoder, image_size=224, stem="imagenet")
    expected, names = model.state_dict(), list(found)
    first = next(iter(expected))
    prefix = next((name.removesuffix(first) for name in names if f".{name}".endswith(f".{first}")), "")  # `encoder.`
    found = {name.removeprefix(prefix): tensor for name, tensor in found.items()}
    if [tensors.get("conv1.weight", torch.empty(0)).shape[-1] for tensors in (found, expected)] == [3, 7]:
        model = build_encoder(encoder, image_size=224, stem="cifar")
    try:
        missing = model.load_state_dict(found, strict=False).missing_keys
    except RuntimeError as error:
        missing = [str(error).splitlines()[-1].strip()]
    if missing:
        fix = f"it begins with {', '.join(names[:3])}; set model.encoder to the network that it comes from"
        raise UserError(f"{file} does not fit {encoder} in {len(missing)} tensors, such as {missing[0]}; {fix}")
    return _with_timm_spec(model, encoder)


def _with_timm_spec(model: Any, encoder: str) -> ImageEncoder:
    about = model.pretrained_cfg
    channels, image_size, _ = about["input_size"]
    numbers = {"image_size": image_size, "channels": channels, "mean": about["mean"], "std": about["std"]}
    return ImageEncoder(model, EncoderSpec(encoder=encoder, stem="auto", norm="batch", **numbers))


def adapt_channels(tensors: dict[str, Tensor], encoder: nn.Module, channels: int) -> dict[str, Tensor]:
    """Weights for color images with their first convolution made to fit `channels`, as timm does it.

    For one channel the three are summed. For others they repeat in turn, scaled so that the sum stays.
    """
    adapted = dict(tensors)
    for name, own in encoder.state_dict().items():
        if own.dim() == 4 and name in tensors and tensors[name].shape[1] == 3 != own.shape[1]:
            adapted[name] = device.timm.models.adapt_input_conv(channels, tensors[name])
    return adapted


def _checked_spec(about: dict[str, Any]) -> EncoderSpec:
    """A spec from a file, which may contain anything."""
    types = annotations_of(EncoderSpec)
    spec = EncoderSpec(**{name: parse(value, types[name], name) for name, value in dict(about).items()})
    check(spec, "")
    numbers = (*spec.mean, *spec.std, *chain(*spec.ranges))
    if not (len(spec.mean) == len(spec.std) == spec.channels and min(spec.std) > 0 and all(map(isfinite, numbers))):
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
    multilabel: bool = False
    """Several labels per image: each class has its own probability."""

    def probabilities(self, features_ND: Tensor) -> Tensor:
        """(N, K)"""
        logits_NK = features_ND.float() @ self.weight_KD.T + self.bias_K
        return logits_NK.sigmoid() if self.multilabel else logits_NK.softmax(dim=1)

    def predict(self, features_ND: Tensor) -> Tensor:
        """The index of the most probable class of each image, (N,)."""
        return (features_ND.float() @ self.weight_KD.T + self.bias_K).argmax(dim=1)


def save_classifier(path: Path, classifier: Classifier) -> None:
    tensors = {"weight": classifier.weight_KD.float(), "bias": classifier.bias_K.float()}
    names, measure = classifier.class_names, classifier.measure
    _write(path, tensors, {"class_names": names, "measure": measure, "multilabel": classifier.multilabel})


def load_classifier(run: Path) -> Classifier:
    file = local(run) / CLASSIFIER_FILE
    if not file.exists():
        fix = "`contune eval RUN eval.linear=fast data.path=FOLDER` trains one on labeled images"
        raise UserError(f"{run} has no {CLASSIFIER_FILE}; {fix}")
    try:
        tensors, about = _read(file)
        return Classifier(
            weight_KD=tensors["weight"],
            bias_K=tensors["bias"],
            class_names=distinct(map(str, about["class_names"])),
            measure=str(about["measure"]),
            multilabel=bool(about.get("multilabel", False)),
        )
    except _DAMAGED as error:
        raise UserError(f"{file} is damaged or not a classifier that contune wrote: {error}") from None


def _write(path: Path, tensors: dict[str, Tensor], about: dict[str, Any]) -> None:
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    text = json.dumps(about)
    content = save(tensors, metadata={"contune": text, DIGEST: _digest(tensors, text)})
    with atomic_file(path) as part:
        part.write_bytes(content)


def _read(file: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors of a file and the description that contune wrote with them."""
    with safe_open(file, framework="pt") as opened:
        metadata = opened.metadata() or {}
        tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118  (not a dict)
    if metadata.get(DIGEST) not in (None, _digest(tensors, metadata["contune"])):  # older files have none
        raise ValueError("its checksum does not match; copy it again")
    return tensors, json.loads(metadata["contune"])


def _digest(tensors: dict[str, Tensor], about: str) -> str:
    digest = hashlib.sha256(about.encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().data)
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
