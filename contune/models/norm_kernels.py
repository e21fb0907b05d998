"""Triton kernels for batch-norm, an addition and a ReLU: three launches each way, in any floating type.

Shapes: x, y and the residual (N, C, H, W) in channels_last, which the kernels see as M = N · H · W rows of C channels;
statistics and parameters (C,). Each of S programs sums a part of the rows, and a second kernel adds them in order.
Without atomics the result has the same bits every time.
"""

import torch
import triton
import triton.language as tl

ROWS, CHANNELS, WARPS = 128, 64, 8
"""Size of a tile, and its warps."""
PROGRAMS = 264
"""Number of programs that sum: two per multiprocessor of an H100."""
CHANNELS_TO_FINISH = 16


def _sizes(x):
    """Rows, channels, how many programs share the rows of a channel, rows of each, and tiles side by side."""
    num_channels = x.shape[1]
    num_rows, columns = x.numel() // num_channels, triton.cdiv(num_channels, CHANNELS)
    rows_each = triton.cdiv(triton.cdiv(num_rows, max(1, PROGRAMS // columns)), ROWS) * ROWS
    return num_rows, num_channels, triton.cdiv(num_rows, rows_each), rows_each, columns


class NormAct(torch.autograd.Function):
    """Training mode of `norm`, a batch-norm, of x, with an addition and a ReLU after it. Updates running statistics."""

    @staticmethod
    def forward(ctx, x, residual, weight_C, bias_C, norm, relu):
        x = x.contiguous(memory_format=torch.channels_last)
        if residual is not None:
            residual = residual.to(x.dtype).contiguous(memory_format=torch.channels_last)
        num_rows, num_channels, num_splits, rows_each, columns = _sizes(x)
        y = torch.empty_like(x)
        mean_C, rstd_C = (torch.empty_like(weight_C) for _ in range(2))
        partial = torch.empty(2, num_splits, num_channels, dtype=torch.float32, device=x.device)
        _sums[(columns, num_splits)](
            x, x, x, mean_C, rstd_C, partial, num_rows, num_channels, rows_each,
            BACKWARD=False, RELU=False, R=ROWS, C=CHANNELS, num_warps=WARPS,
        )  # fmt: skip
        _finish_forward[(triton.cdiv(num_channels, CHANNELS_TO_FINISH),)](
            x, partial, mean_C, rstd_C, norm.running_mean, norm.running_var, norm.num_batches_tracked,
            num_rows, num_channels, num_splits, norm.momentum or 0.0, norm.eps,
            S=triton.next_power_of_2(num_splits), C=CHANNELS_TO_FINISH,
        )  # fmt: skip
        _apply_forward[(triton.cdiv(num_rows, ROWS), columns)](
            x, x if residual is None else residual, weight_C, bias_C, mean_C, rstd_C, y, num_rows, num_channels,
            ADD=residual is not None, RELU=relu, R=ROWS, C=CHANNELS, num_warps=WARPS,
        )  # fmt: skip
        ctx.save_for_backward(x, y if relu else None, weight_C, mean_C, rstd_C)
        ctx.add = residual is not None
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        x, y, weight_C, mean_C, rstd_C = ctx.saved_tensors
        g = g.to(x.dtype).contiguous(memory_format=torch.channels_last)
        num_rows, num_channels, num_splits, rows_each, columns = _sizes(x)
        x_grad, residual_grad = torch.empty_like(x), torch.empty_like(x) if ctx.add else None
        weight_grad_C, bias_grad_C = (torch.empty_like(weight_C) for _ in range(2))
        partial = torch.empty(2, num_splits, num_channels, dtype=torch.float32, device=x.device)
        relu, output = y is not None, x if y is None else y
        _sums[(columns, num_splits)](
            x, output, g, mean_C, rstd_C, partial, num_rows, num_channels, rows_each,
            BACKWARD=True, RELU=relu, R=ROWS, C=CHANNELS, num_warps=WARPS,
        )  # fmt: skip
        _finish_backward[(triton.cdiv(num_channels, CHANNELS_TO_FINISH),)](
            partial, bias_grad_C, weight_grad_C, num_channels, num_splits,
            S=triton.next_power_of_2(num_splits), C=CHANNELS_TO_FINISH,
        )  # fmt: skip
        _apply_backward[(triton.cdiv(num_rows, ROWS), columns)](
            x, output, g, weight_C, mean_C, rstd_C, bias_grad_C, weight_grad_C, x_grad,
            x_grad if residual_grad is None else residual_grad, num_rows, num_channels,
            ADD=ctx.add, RELU=relu, R=ROWS, C=CHANNELS, num_warps=WARPS,
        )  # fmt: skip
        return x_grad, residual_grad, weight_grad_C, bias_grad_C, None, None


@triton.jit
def _sums(x_ptr, y_ptr, g_ptr, mean_ptr, rstd_ptr, partial_ptr, num_rows, num_channels, rows_each,
          BACKWARD: tl.constexpr, RELU: tl.constexpr, R: tl.constexpr, C: tl.constexpr):  # fmt: skip
    """Forward: Σ d and Σ d², d the distance from the first row. Backward: Σ g and Σ g x̂, g the incoming gradient."""
    channels = tl.program_id(0) * C + tl.arange(0, C)
    split, num_splits = tl.program_id(1), tl.num_programs(1)
    real = channels < num_channels
    if BACKWARD:
        mean = tl.load(mean_ptr + channels, mask=real, other=0.0)
        rstd = tl.load(rstd_ptr + channels, mask=real, other=0.0)
    else:
        mean = tl.load(x_ptr + channels, mask=real, other=0.0).to(tl.float32)
        rstd = mean
    first = tl.zeros((R, C), dtype=tl.float32)
    second = tl.zeros((R, C), dtype=tl.float32)
    begin = split * rows_each
    end = tl.minimum(begin + rows_each, num_rows)
    for start in range(begin, end, R):
        rows = start + tl.arange(0, R)
        at = rows.to(tl.int64)[:, None] * num_channels + channels[None, :]
        inside = (rows < end)[:, None] & real[None, :]
        d = tl.load(x_ptr + at, mask=inside, other=0.0).to(tl.float32) - mean[None, :]
        if BACKWARD:
            g = tl.load(g_ptr + at, mask=inside, other=0.0).to(tl.float32)
            if RELU:
                g = tl.where(tl.load(y_ptr + at, mask=inside, other=0.0) > 0, g, 0.0)
            first += g
            second += g * d * rstd[None, :]
        else:
            d = tl.where(inside, d, 0.0)
            first += d
            second += d * d
    tl.store(partial_ptr + split * num_channels + channels, tl.sum(first, axis=0), mask=real)
    tl.store(partial_ptr + (num_splits + split) * num_channels + channels, tl.sum(second, axis=0), mask=real)


@triton.jit
def _total(partial_ptr, channels, real, num_channels, num_splits, which, S: tl.constexpr):
    splits = tl.arange(0, S)
    at = (which * num_splits + splits)[:, None] * num_channels + channels[None, :]
    parts = tl.load(partial_ptr + at, mask=(splits < num_splits)[:, None] & real[None, :], other=0.0)
    return tl.sum(parts, axis=0)


@triton.jit
def _finish_forward(x_ptr, partial_ptr, mean_ptr, rstd_ptr, running_mean_ptr, running_var_ptr, num_batches_ptr,
                    num_rows, num_channels, num_splits, momentum, eps,
                    S: tl.constexpr, C: tl.constexpr):  # fmt: skip
    """The batch's mean, 1 / its standard deviation, and the running statistics."""
    if tl.program_id(0) == 0:
        tl.store(num_batches_ptr, tl.load(num_batches_ptr) + 1)
    channels = tl.program_id(0) * C + tl.arange(0, C)
    real = channels < num_channels
    shift = tl.load(x_ptr + channels, mask=real, other=0.0).to(tl.float32)
    off = _total(partial_ptr, channels, real, num_channels, num_splits, 0, S) / num_rows
    squares = _total(partial_ptr, channels, real, num_channels, num_splits, 1, S) / num_rows
    mean, var = shift + off, tl.maximum(squares - off * off, 0.0)
    tl.store(mean_ptr + channels, mean, mask=real)
    tl.store(rstd_ptr + channels, 1.0 / tl.sqrt(var + eps), mask=real)
    old_mean = tl.load(running_mean_ptr + channels, mask=real, other=0.0)
    old_var = tl.load(running_var_ptr + channels, mask=real, other=0.0)
    unbiased = var * (num_rows / (num_rows - 1.0))
    tl.store(running_mean_ptr + channels, old_mean + momentum * (mean - old_mean), mask=real)
    tl.store(running_var_ptr + channels, old_var + momentum * (unbiased - old_var), mask=real)


@triton.jit
def _finish_backward(partial_ptr, bias_grad_ptr, weight_grad_ptr, num_channels, num_splits,
                     S: tl.constexpr, C: tl.constexpr):  # fmt: skip
    channels = tl.program_id(0) * C + tl.arange(0, C)
    real = channels < num_channels
    for which in tl.static_range(2):
        whole = _total(partial_ptr, channels, real, num_channels, num_splits, which, S)
        tl.store((bias_grad_ptr if which == 0 else weight_grad_ptr) + channels, whole, mask=real)


@triton.jit
def _apply_forward(x_ptr, residual_ptr, weight_ptr, bias_ptr, mean_ptr, rstd_ptr, y_ptr, num_rows, num_channels,
                   ADD: tl.constexpr, RELU: tl.constexpr, R: tl.constexpr, C: tl.constexpr):  # fmt: skip
    channels = tl.program_id(1) * C + tl.arange(0, C)
    rows = tl.program_id(0) * R + tl.arange(0, R)
    real = channels < num_channels
    at = rows.to(tl.int64)[:, None] * num_channels + channels[None, :]
    inside = (rows < num_rows)[:, None] & real[None, :]
    scale = tl.load(weight_ptr + channels, mask=real, other=0.0) * tl.load(rstd_ptr + channels, mask=real, other=0.0)
    shift = tl.load(bias_ptr + channels, mask=real, other=0.0)
    mean = tl.load(mean_ptr + channels, mask=real, other=0.0)
    y = (tl.load(x_ptr + at, mask=inside, other=0.0).to(tl.float32) - mean[None, :]) * scale[None, :] + shift[None, :]
    if ADD:
        y += tl.load(residual_ptr + at, mask=inside, other=0.0).to(tl.float32)
    if RELU:
        y = tl.where(y < 0, 0.0, y)  # unlike tl.maximum on a GPU, it keeps a NaN
    tl.store(y_ptr + at, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _apply_backward(x_ptr, y_ptr, g_ptr, weight_ptr, mean_ptr, rstd_ptr, bias_grad_ptr, weight_grad_ptr, x_grad_ptr,
                    residual_grad_ptr, num_rows, num_channels,
                    ADD: tl.constexpr, RELU: tl.constexpr, R: tl.constexpr, C: tl.constexpr):  # fmt: skip
    channels = tl.program_id(1) * C + tl.arange(0, C)
    rows = tl.program_id(0) * R + tl.arange(0, R)
    real = channels < num_channels
    at = rows.to(tl.int64)[:, None] * num_channels + channels[None, :]
    inside = (rows < num_rows)[:, None] & real[None, :]
    rstd = tl.load(rstd_ptr + channels, mask=real, other=0.0)
    mean = tl.load(mean_ptr + channels, mask=real, other=0.0)
    scale = tl.load(weight_ptr + channels, mask=real, other=0.0) * rstd
    g_mean = tl.load(bias_grad_ptr + channels, mask=real, other=0.0) / num_rows
    gx_mean = tl.load(weight_grad_ptr + channels, mask=real, other=0.0) / num_rows
    g = tl.load(g_ptr + at, mask=inside, other=0.0).to(tl.float32)
    if RELU:
        g = tl.where(tl.load(y_ptr + at, mask=inside, other=0.0) > 0, g, 0.0)
    if ADD:
        tl.store(residual_grad_ptr + at, g.to(residual_grad_ptr.dtype.element_ty), mask=inside)
    x_hat = (tl.load(x_ptr + at, mask=inside, other=0.0).to(tl.float32) - mean[None, :]) * rstd[None, :]
    x_grad = scale[None, :] * (g - g_mean[None, :] - x_hat * gx_mean[None, :])
    tl.store(x_grad_ptr + at, x_grad.to(x_grad_ptr.dtype.element_ty), mask=inside)
