"""Batch-norm with the addition and the ReLU that follow it, as one operation: they are most of a ResNet's step.

One after the other each reads and writes all of an activation, and batch-norm reads it twice. Together they read it
twice and write it once, as what a compiler makes of them does.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from contune.device import HAS_TRITON, interprets_triton


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


def _has_kernels(x: Tensor) -> bool:
    """On CUDA or, where that was asked for, in Triton's interpreter."""
    return HAS_TRITON and (x.is_cuda or interprets_triton())
