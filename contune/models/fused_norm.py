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


def has_norms_to_fuse(model: nn.Module) -> bool:
    """Whether all parts of the ResNets in `model` can be fused. If only some can, compiling is faster."""
    parts = [module for module in model.modules() if isinstance(module, tuple(_FUSED))]
    return HAS_TRITON and bool(parts) and all(_is_fusable(part) for part in parts)


def fuse_norms(model: nn.Module) -> None:
    """Makes the plain ResNets of timm in `model` use `FusedNorm`. Weights and their names stay."""
    for module in list(model.modules()):
        if _is_fusable(module):
            for norm in _norms(module):
                norm.__class__ = FusedNorm
            module.__class__ = _FUSED[type(module)]


def _norms(module: Any) -> list[nn.Module]:
    """The norms of a block or a stem, including the shortcut's."""
    shortcut = list(getattr(module, "downsample", None) or [])
    own = [getattr(module, name, None) for name in ("bn1", "bn2", "bn3")]
    return [norm for norm in (*own, *shortcut[-1:]) if norm is not None]


def _is_fusable(module: Any) -> bool:
    """Whether nothing stands between convolution, batch-norm and ReLU, such as attention or dropout."""
    between = [getattr(module, name, None) for name in ("se", "drop_path", "drop_block", "aa")]
    acts = [getattr(module, name, None) for name in ("act1", "act2", "act3")]
    return (
        type(module) in _FUSED
        and all(part is None or type(part) is nn.Identity for part in between)
        and all(act is None or type(act) is nn.ReLU for act in acts)
        and all(type(norm) is nn.BatchNorm2d and norm.affine and norm.track_running_stats for norm in _norms(module))
        and not getattr(module, "grad_checkpointing", False)
    )
