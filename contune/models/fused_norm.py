"""Batch-norm with the addition and the ReLU that follow it, as one operation: they are most of a ResNet's step.

One after the other each reads and writes all of an activation, and batch-norm reads it twice. Together they read it
twice and write it once; the compiler does as much, after half a minute of compiling.
"""

import os
from importlib.util import find_spec
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from contune._vision import timm

HAS_TRITON = find_spec("triton") is not None
_resnet: Any = timm.models.resnet


class FusedNorm(nn.BatchNorm2d):
    """nn.BatchNorm2d whose output another tensor may be added to, and a ReLU applied to."""

    def forward(self, x: Tensor, residual: Tensor | None = None, relu: bool = False) -> Tensor:
        if self.training and _has_kernels(x) and x.numel() > x.shape[1]:  # torch has a sentence for a single value
            return _NormAct.apply(x, residual, self.weight, self.bias, self, relu)  # type: ignore[no-untyped-call,no-any-return]  # torch leaves it untyped
        y: Tensor = super().forward(x)
        if residual is not None:
            y = y + residual
        return F.relu(y) if relu else y


class _NormAct(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, residual: Tensor | None, weight_C: Tensor, bias_C: Tensor, norm: FusedNorm, relu: bool
    ) -> Tensor:
        from contune.models import norm_kernels

        x = x.contiguous(memory_format=torch.channels_last)
        if residual is not None:
            residual = residual.to(x.dtype).contiguous(memory_format=torch.channels_last)
        assert norm.running_mean is not None
        assert norm.running_var is not None
        assert norm.num_batches_tracked is not None
        y, mean_C, rstd_C = norm_kernels.forward(
            x, residual, weight_C, bias_C, norm.running_mean, norm.running_var, norm.num_batches_tracked,
            momentum=norm.momentum or 0.0, eps=norm.eps, relu=relu,
        )  # fmt: skip
        ctx.save_for_backward(x, y if relu else None, weight_C, mean_C, rstd_C)
        ctx.add = residual is not None
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        from contune.models import norm_kernels

        x, y, weight_C, mean_C, rstd_C = ctx.saved_tensors
        g = g.to(x.dtype).contiguous(memory_format=torch.channels_last)
        x_grad, residual_grad, weight_grad_C, bias_grad_C = norm_kernels.backward(
            g, x, y, weight_C, mean_C, rstd_C, add=ctx.add
        )
        return x_grad, residual_grad, weight_grad_C, bias_grad_C, None, None


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


def fuse_norms(model: nn.Module) -> None:
    """Has timm's ResNets in `model`, where they are plain ones, compute so. Weights and their names stay."""
    for module in list(model.modules()):
        if type(module) in _FUSED and _is_plain(module):
            for norm in _norms(module):
                norm.__class__ = FusedNorm
            module.__class__ = _FUSED[type(module)]


def _norms(module: Any) -> list[nn.Module]:
    """Of a block or a stem, those of the shortcut included."""
    shortcut = list(getattr(module, "downsample", None) or [])
    own = [getattr(module, name, None) for name in ("bn1", "bn2", "bn3")]
    return [norm for norm in (*own, *shortcut[-1:]) if norm is not None]


def _is_plain(module: Any) -> bool:
    """Nothing between convolution, batch-norm and ReLU, such as attention or what drops parts of it."""
    between = [getattr(module, name, None) for name in ("se", "drop_path", "drop_block", "aa")]
    acts = [getattr(module, name, None) for name in ("act1", "act2", "act3")]
    return (
        all(part is None or type(part) is nn.Identity for part in between)
        and all(act is None or type(act) is nn.ReLU for act in acts)
        and all(type(norm) is nn.BatchNorm2d and norm.affine and norm.track_running_stats for norm in _norms(module))
        and not getattr(module, "grad_checkpointing", False)
    )


def _has_kernels(x: Tensor) -> bool:
    """On CUDA or, where that was asked for, in Triton's interpreter."""
    return HAS_TRITON and (x.is_cuda or os.environ.get("TRITON_INTERPRET") == "1")
