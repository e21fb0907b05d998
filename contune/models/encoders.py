"""Encoders: any timm model by name, with a stem that fits small images."""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from contune.device import timm
from contune.errors import UserError, unknown

RESNET_MINI = "resnet-mini"
STEMS = ("auto", "cifar", "imagenet")
NORMS = ("batch", "group")
OF_MAPS_WITHOUT_PIXELS = (RuntimeError, ValueError, AssertionError, ArithmeticError, LookupError)
"""What timm's models raise where an image is too small for them, each family in its own way."""
SMALL_IMAGE = 64
"""`stem=auto` takes the 3×3 stem for images up to this many pixels a side."""


def build_encoder(
    name: str, *, channels: int = 3, image_size: int = 32, stem: str = "auto", norm: str = "batch"
) -> nn.Module:
    """An encoder from images (N, channels, size, size) to features (N, encoder.num_features).

    name: `resnet18`, `resnet34`, `resnet50`, `resnet101` are the paper's; `resnet-mini` is a small one for tiny
        images on a CPU; any other timm model works too.
    stem: for ResNets, `cifar` is a 3×3 convolution of stride 1 without max-pooling, as the paper has it for
        32-pixel images; `imagenet` leaves timm's 7×7 stride 2; `auto` chooses by image size.
    norm: for ResNets, `group` replaces batch-norm, for batches too small for it.
    """
    if stem not in STEMS:
        raise unknown("stem", stem, STEMS)
    if norm not in NORMS:
        raise unknown("norm", norm, NORMS)
    check_encoder_name(name)
    try:
        encoder = _create(name, channels=channels, image_size=image_size, norm=norm)
        _adapt_stem(encoder, name, channels=channels, image_size=image_size, stem=stem)
        encoder.num_features = _num_features(encoder, channels, image_size)  # type: ignore[assignment]  # torch's view of it
    except UserError:
        raise
    except OF_MAPS_WITHOUT_PIXELS as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(
            f"{name} does not take images of {image_size} pixels ({reason}); give a larger data.image_size or another "
            "model.encoder"
        ) from error
    return encoder


def _num_features(encoder: nn.Module, channels: int, image_size: int) -> int:
    """By a trial: what timm's models say of themselves is not, in all families, the width of what they return."""
    with torch.no_grad():
        features_ND: Tensor = encoder.eval()(torch.zeros(1, channels, image_size, image_size))
    encoder.train()
    if features_ND.dim() != 2:
        raise UserError(
            f"this encoder returns {tuple(features_ND.shape)} for an image and not a row of features; take another"
        )
    return features_ND.shape[1]


def _adapt_stem(encoder: nn.Module, name: str, *, channels: int, image_size: int, stem: str) -> None:
    wants_small_stem = stem == "cifar" or (stem == "auto" and image_size <= SMALL_IMAGE)
    if wants_small_stem and _has_plain_stem(encoder):
        _use_cifar_stem(encoder, channels)
    elif stem == "cifar":
        raise UserError(
            f"stem=cifar is for ResNets that begin with one convolution, and {name} does not; "
            "use stem=auto, which leaves it as it is"
        )


def check_encoder_name(name: str) -> None:
    if name != RESNET_MINI and not timm.is_model(name):
        raise unknown("encoder", name, [RESNET_MINI, *timm.list_models()])


def _create(name: str, *, channels: int, image_size: int, norm: str) -> nn.Module:
    options: dict[str, Any] = {"num_classes": 0, "in_chans": channels}
    if norm == "group":
        options["norm_layer"] = partial(timm.layers.GroupNorm, num_groups=8)
    if name == RESNET_MINI:
        return _resnet_mini(**options)
    if name.startswith("resnet"):
        # The authors' ResNets, like torchvision's, start their residual branches at full strength.
        resnet: nn.Module = timm.create_model(name, zero_init_last=False, **options)
        return resnet
    if norm != "batch":
        raise UserError(f"norm={norm} is for ResNets and {name} is none; leave model.norm=batch")
    model: nn.Module
    try:
        model = timm.create_model(name, img_size=image_size, **options)
    except TypeError:  # convolutional models take any size and no such argument
        model = timm.create_model(name, **options)
    return model


def _resnet_mini(**options: Any) -> nn.Module:
    """One basic block a stage, half of ResNet-18's widths: 1.2 M parameters."""
    resnet: Any = timm.models.resnet  # its annotations ask for an instance of a block where it takes the class
    encoder: nn.Module = resnet.ResNet(
        resnet.BasicBlock, (1, 1, 1, 1), channels=(32, 64, 128, 256), zero_init_last=False, **options
    )
    return encoder


def _has_plain_stem(encoder: nn.Module) -> bool:
    return isinstance(encoder, timm.models.resnet.ResNet) and isinstance(encoder.conv1, nn.Conv2d)


def _use_cifar_stem(encoder: nn.Module, channels: int) -> None:
    stem = encoder.conv1
    assert isinstance(stem, nn.Conv2d)
    encoder.conv1 = nn.Conv2d(channels, stem.out_channels, kernel_size=3, stride=1, padding=1, bias=False)
    nn.init.kaiming_normal_(encoder.conv1.weight, mode="fan_out", nonlinearity="relu")
    encoder.maxpool = nn.Identity()
