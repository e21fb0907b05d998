"""Batch-norm, an addition and a ReLU forward and backward: three launches each way, in any floating type.

Shapes: x, y and what is added (N, C, H, W) in channels_last; statistics and parameters (C,).
"""

import torch
import triton
from torch import Tensor

from contune.models import norm_tiles as tiles

ROWS, CHANNELS, WARPS = 128, 64, 8
"""Of a tile, and who works on it."""
PROGRAMS = 264
"""That sum; two for each multiprocessor of an H100."""
CHANNELS_TO_FINISH = 16


def _splits(num_rows: int, num_channels: int) -> tuple[int, int]:
    """How many programs share the rows of a channel, and how many rows each has."""
    wanted = max(1, PROGRAMS // triton.cdiv(num_channels, CHANNELS))
    rows_each = triton.cdiv(triton.cdiv(num_rows, wanted), ROWS) * ROWS
    return triton.cdiv(num_rows, rows_each), rows_each


def forward(
    x: Tensor, residual: Tensor | None, weight_C: Tensor, bias_C: Tensor, running_mean_C: Tensor,
    running_var_C: Tensor, num_batches: Tensor, *, momentum: float, eps: float, relu: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """y, the batch's mean and one over its deviation; running statistics are updated."""
    num_channels = x.shape[1]
    num_rows = x.numel() // num_channels
    num_splits, rows_each = _splits(num_rows, num_channels)
    y = torch.empty_like(x)
    mean_C, rstd_C = (torch.empty_like(weight_C) for _ in range(2))
    partial = torch.empty(2, num_splits, num_channels, dtype=torch.float32, device=x.device)
    columns = triton.cdiv(num_channels, CHANNELS)
    tiles.sums[(columns, num_splits)](
        x, x, x, mean_C, rstd_C, partial, num_rows, num_channels, rows_each,
        BACKWARD=False, RELU=False, R=ROWS, C=CHANNELS, num_warps=WARPS,
    )  # fmt: skip
    tiles.finish_forward[(triton.cdiv(num_channels, CHANNELS_TO_FINISH),)](
        x, partial, mean_C, rstd_C, running_mean_C, running_var_C, num_batches, num_rows, num_channels, num_splits,
        momentum, eps, S=triton.next_power_of_2(num_splits), C=CHANNELS_TO_FINISH,
    )  # fmt: skip
    tiles.apply_forward[(triton.cdiv(num_rows, ROWS), columns)](
        x, x if residual is None else residual, weight_C, bias_C, mean_C, rstd_C, y, num_rows, num_channels,
        ADD=residual is not None, RELU=relu, R=ROWS, C=CHANNELS, num_warps=WARPS,
    )  # fmt: skip
    return y, mean_C, rstd_C


def backward(
    g: Tensor, x: Tensor, y: Tensor | None, weight_C: Tensor, mean_C: Tensor, rstd_C: Tensor, *, add: bool
) -> tuple[Tensor, Tensor | None, Tensor, Tensor]:
    """Gradients of x, of what was added, of weight and bias. y: what a ReLU gave; None without one."""
    num_channels = x.shape[1]
    num_rows = x.numel() // num_channels
    num_splits, rows_each = _splits(num_rows, num_channels)
    x_grad, residual_grad = torch.empty_like(x), torch.empty_like(x) if add else None
    weight_grad_C, bias_grad_C = (torch.empty_like(weight_C) for _ in range(2))
    partial = torch.empty(2, num_splits, num_channels, dtype=torch.float32, device=x.device)
    columns, relu, given = triton.cdiv(num_channels, CHANNELS), y is not None, x if y is None else y
    tiles.sums[(columns, num_splits)](
        x, given, g, mean_C, rstd_C, partial, num_rows, num_channels, rows_each,
        BACKWARD=True, RELU=relu, R=ROWS, C=CHANNELS, num_warps=WARPS,
    )  # fmt: skip
    tiles.finish_backward[(triton.cdiv(num_channels, CHANNELS_TO_FINISH),)](
        partial, bias_grad_C, weight_grad_C, num_channels, num_splits,
        S=triton.next_power_of_2(num_splits), C=CHANNELS_TO_FINISH,
    )  # fmt: skip
    tiles.apply_backward[(triton.cdiv(num_rows, ROWS), columns)](
        x, given, g, weight_C, mean_C, rstd_C, bias_grad_C, weight_grad_C, x_grad,
        x_grad if residual_grad is None else residual_grad, num_rows, num_channels,
        ADD=add, RELU=relu, R=ROWS, C=CHANNELS, num_warps=WARPS,
    )  # fmt: skip
    return x_grad, residual_grad, weight_grad_C, bias_grad_C
