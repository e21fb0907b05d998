"""Encoders: any timm model by name, with a stem that fits small images, or a module of your own."""

from copy import deepcopy
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from contune import device  # `device.timm` imports timm on first use: it takes seconds
from contune.errors import UserError, unknown

RESNET_MINI = "resnet-mini"
MINI = {"layers": [1, 1, 1, 1], "channels": [32, 64, 128, 256]}
"""What makes `resnet-mini` of ResNet-18: one basic block per stage and half of its widths, 1.2 M parameters."""
SMALL_IMAGE = 32
"""`stem=auto` builds the 3×3 stem for images of up to this many pixels per side."""
OWN_MODULE = "module:"
"""What the name of an encoder begins with that is a module of the user."""


def build_encoder(
    name: str,
    *,
    channels: int = 3,
    image_size: int = 32,
    stem: str = "auto",
    norm: str = "batch",
    own: nn.Module | None = None,
) -> nn.Module:
    """An encoder from images (N, channels, size, size) to features (N, encoder.num_features).

    name: `resnet18`, `resnet34`, `resnet50` and `resnet101` are the paper's. `resnet-mini` is a small one for tiny
        images on a CPU. Any other timm model works too.
    stem: for ResNets. `cifar` is a 3×3 convolution of stride 1 without max-pooling, which the paper uses for 32-pixel
        images. `imagenet` keeps timm's 7×7 convolution of stride 2. `auto` chooses by image size.
    norm: for ResNets. `group` replaces batch-norm, for batches that are too small for it.
    own: use a copy of this module instead. Name, stem and norm do not matter then.
    """
    if own is None:
        check_encoder_name(name)
        if norm != "batch" and not name.startswith("resnet"):
            raise UserError(f"norm={norm} works for ResNets only, and {name} is not one. Set model.norm=batch.")
    try:
        encoder = deepcopy(own).cpu() if own is not None else _create(name, channels, image_size, norm)
        wants_small_stem = own is None and (stem == "cifar" or (stem == "auto" and image_size <= SMALL_IMAGE))
        conv = getattr(encoder, "conv1", None)
        if wants_small_stem and isinstance(encoder, device.timm.models.resnet.ResNet) and isinstance(conv, nn.Conv2d):
            encoder.conv1 = nn.Conv2d(channels, conv.out_channels, kernel_size=3, stride=1, padding=1, bias=False)
            nn.init.kaiming_normal_(encoder.conv1.weight, mode="fan_out", nonlinearity="relu")
            encoder.maxpool = nn.Identity()
        # By a trial: for some families of timm, num_features is not the width of the output.
        with torch.no_grad():
            features_ND: Tensor = encoder.eval()(torch.zeros(1, channels, image_size, image_size))
    except Exception as error:  # each family of timm has its own for images that are too small
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        fix = "set a larger data.image_size or another model.encoder"
        raise UserError(f"{name} cannot take images of {image_size} pixels ({reason}); {fix}") from error
    if own is None and stem == "cifar" and not has_small_stem(encoder):
        raise UserError(f"stem=cifar is for ResNets that begin with one convolution; set model.stem=auto for {name}")
    if features_ND.dim() != 2:
        raise UserError(f"{name} returns {tuple(features_ND.shape)} for an image instead of one row of features.")
    encoder.num_features = features_ND.shape[1]  # type: ignore[assignment]  # torch types attributes as modules
    return encoder.train()


def check_encoder_name(name: str) -> None:
    if name.startswith(OWN_MODULE):
        kind = name.removeprefix(OWN_MODULE).rpartition("-")[0]
        fix = f"in Python, pass one: contune.load_encoder(RUN, encoder={kind}(...))"
        raise UserError(f"this encoder is a module of your own, {kind}, which contune cannot build; {fix}")
    if name != RESNET_MINI and not device.timm.is_model(name):
        raise unknown("encoder", name, [RESNET_MINI, *device.timm.list_models()])


def _create(name: str, channels: int, image_size: int, norm: str) -> nn.Module:
    options: dict[str, Any] = {"num_classes": 0, "in_chans": channels}
    if norm == "group":
        options["norm_layer"] = partial(device.timm.layers.GroupNorm, num_groups=8)
    if name == RESNET_MINI:
        name, options = "resnet18", options | MINI
    # The authors' ResNets, like torchvision's, start their residual branches at full strength.
    own = {"zero_init_last": False} if name.startswith("resnet") else {"img_size": image_size}
    try:
        model: nn.Module = device.timm.create_model(name, **own, **options)
    except TypeError:  # convolutional models take any size and no such argument
        model = device.timm.create_model(name, **options)
    return model


def has_small_stem(encoder: nn.Module) -> bool:
    """Whether a ResNet has the 3×3 stem for small images."""
    stem = getattr(encoder, "conv1", None)
    return getattr(stem, "kernel_size", None) == (3, 3) and getattr(stem, "stride", None) == (1, 1)
