"""Batch-norm fused with the addition and the ReLU that follow it, in timm's ResNets.

These are most of a ResNet's step on a GPU. As separate operations they read and write the whole activation each, and
batch-norm reads it twice. Fused, they read it twice and write it once.
"""

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from contune.device import HAS_TRITON, interprets_triton, timm

_resnet: Any = timm.models.resnet


class FusedNorm(nn.BatchNorm2d):
    """nn.BatchNorm2d with an optional addition and ReLU after it."""

    def forward(self, x: Tensor, residual: Tensor | None = None, relu: bool = False) -> Tensor:
        has_kernels = HAS_TRITON and (x.is_cuda or interprets_triton())
        if self.training and has_kernels and x.numel() > x.shape[1]:  # torch raises for a single value per channel
            from contune.models.norm_kernels import NormAct  # needs triton, which a CPU-only torch does not bring

            return NormAct.apply(x, residual, self.weight, self.bias, self, relu)  # type: ignore[no-untyped-call,no-any-return]  # torch leaves it untyped
        y: Tensor = super().forward(x)
        if residual is not None:
            y = y + residual
        return F.relu(y) if relu else y


class _BasicBlock(_resnet.BasicBlock):  # type: ignore[misc]  # timm's is not known to mypy
    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        hidden = self.bn1(self.conv1(x), relu=True)
        y: Tensor = self.bn2(self.conv2(hidden), shortcut, relu=True)
        return y


class _Bottleneck(_resnet.Bottleneck):  # type: ignore[misc]
    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        hidden = self.bn1(self.conv1(x), relu=True)
        hidden = self.bn2(self.conv2(hidden), relu=True)
        y: Tensor = self.bn3(self.conv3(hidden), shortcut, relu=True)
        return y


class _ResNet(_resnet.ResNet):  # type: ignore[misc]
    def forward_features(self, x: Tensor) -> Tensor:
        y: Tensor = self.maxpool(self.bn1(self.conv1(x), relu=True))
        for stage in (self.layer1, self.layer2, self.layer3, self.layer4):
            y = stage(y)
        return y


_FUSED: dict[type[nn.Module], type[nn.Module]] = {
    _resnet.BasicBlock: _BasicBlock,
    _resnet.Bottleneck: _Bottleneck,
    _resnet.ResNet: _ResNet,
}
_PLAIN = {
    nn.Conv2d,
    nn.BatchNorm2d,
    nn.ReLU,
    nn.Identity,
    nn.Sequential,
    nn.MaxPool2d,
    nn.Linear,
    timm.layers.SelectAdaptivePool2d,
}
"""What these consist of, unless attention, dropout or a blur stands between convolution, batch-norm and ReLU."""


def fuse_norms(model: nn.Module) -> None:
    """Makes the plain ResNets of timm in `model` use `FusedNorm`. Weights and their names stay."""
    for part in parts_to_fuse(model):
        part.__class__ = _FUSED[type(part)]
        for norm in part.modules():
            if type(norm) is nn.BatchNorm2d:
                norm.__class__ = FusedNorm


def parts_to_fuse(model: nn.Module) -> list[nn.Module]:
    """The parts of all ResNets in `model`; none if only some can be fused, because compiling is then faster."""
    parts = [module for module in model.modules() if isinstance(module, tuple(_FUSED))]
    plain = (type(part) in _FUSED and {*map(type, part.children())} <= _PLAIN for part in parts)
    return parts if HAS_TRITON and all(plain) else []
