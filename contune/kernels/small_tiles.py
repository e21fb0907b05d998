"""The Triton kernels for small batches: embeddings are normalised where they are loaded, columns are not split.

So a loss and its gradient are two launches. Work is done twice that larger batches do once, which costs less than
starting another kernel. Shapes: M anchors of a block, N candidates of a tile, D embedding size (padded).
"""

import triton
import triton.language as tl

from contune.kernels.rows import divisor
from contune.kernels.tiles import LOG2_E, coefficients


@triton.jit
def _unit(z_ptr, rows, num_rows, row_stride, column_stride, D: tl.constexpr, BD: tl.constexpr):
    """Embeddings of length 1, and the lengths they had."""
    dims = tl.arange(0, BD)
    inside = (rows[:, None] < num_rows) & (dims[None, :] < D)
    z_RD = tl.load(z_ptr + rows[:, None] * row_stride + dims[None, :] * column_stride, mask=inside, other=0.0)
    z_RD = z_RD.to(tl.float32)
    norm_R = divisor(z_RD)
    return z_RD / norm_R[:, None], norm_R


@triton.jit
def anchors_kernel(
    z_ptr, label_ptr, out_ptr, num, row_stride, column_stride, to_log2, temperature, k1, k2, scale,
    D: tl.constexpr, BD: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    PULLS: tl.constexpr, INNER: tl.constexpr, HALF: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """(7, N) for each anchor: loss, number of positives, and the five numbers that `coefficients` reads."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    row_labels = tl.load(label_ptr + rows, mask=rows < num, other=-1)
    x_MD, _row_norm = _unit(z_ptr, rows, num, row_stride, column_stride, D, BD)
    if HALF:
        x_MD = x_MD.to(tl.float16)
    denominator = tl.zeros((BM,), dtype=tl.float32)
    similarity = tl.zeros((BM,), dtype=tl.float32)
    count = tl.zeros((BM,), dtype=tl.float32)
    inner = tl.zeros((BM,), dtype=tl.float32)
    for start in range(0, num, BN):
        cols = start + tl.arange(0, BN)
        y_ND, _column_norm = _unit(z_ptr, cols, num, row_stride, column_stride, D, BD)
        s_MN = tl.dot(x_MD, tl.trans(y_ND.to(x_MD.dtype)), input_precision=PRECISION)
        column_labels = tl.load(label_ptr + cols, mask=cols < num, other=-2)
        same_MN = row_labels[:, None] == column_labels[None, :]
        positive_MN = same_MN & (rows[:, None] != cols[None, :]) & (cols < num)[None, :]
        negative_MN = (row_labels[:, None] != column_labels[None, :]) & (cols < num)[None, :]
        exp_MN = tl.exp2(s_MN * to_log2)
        part_MN = tl.where(negative_MN, k2 * exp_MN, 0.0) + tl.where(positive_MN, exp_MN, 0.0)
        if PULLS:
            part_MN += tl.where(positive_MN, k1 * tl.exp2(-s_MN * LOG2_E), 0.0)
        if INNER:
            inner += tl.sum(tl.where(positive_MN, exp_MN, 0.0), axis=1)
        denominator += tl.sum(part_MN, axis=1)
        similarity += tl.sum(tl.where(positive_MN, s_MN, 0.0), axis=1)
        count += tl.sum(tl.where(positive_MN, 1.0, 0.0), axis=1)

    usable = count > 0
    safe_count = tl.where(usable, count, 1.0)
    log2_D = tl.log2(tl.where(usable, denominator, 1.0))
    log2_S = tl.log2(tl.where(usable & (inner != 0), inner, 1.0))
    loss = log2_D / LOG2_E - similarity / (temperature * safe_count)
    if INNER:
        loss = (log2_D - log2_S + tl.log2(safe_count)) / LOG2_E
    weight = tl.where(usable, scale, 0.0)
    out, inside = out_ptr + rows, rows < num
    tl.store(out, tl.where(usable, loss, 0.0), mask=inside)
    tl.store(out + num, count, mask=inside)
    tl.store(out + 2 * num, weight * tl.exp2(-log2_D), mask=inside)
    tl.store(out + 3 * num, tl.where(usable, log2_D, float("inf")), mask=inside)
    tl.store(out + 4 * num, weight / safe_count, mask=inside)
    tl.store(out + 5 * num, weight, mask=inside)
    tl.store(out + 6 * num, tl.where(usable, log2_S, float("inf")), mask=inside)


@triton.jit
def gradient_kernel(
    z_ptr, label_ptr, anchor_ptr, loss_ptr, grad_ptr, num, row_stride, column_stride,
    to_log2, temperature, pull_factor, k2, scale, MEAN: tl.constexpr,
    D: tl.constexpr, BD: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    PULLS: tl.constexpr, INNER: tl.constexpr, HALF: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The sum or mean of the losses, by the first program, and its gradient with respect to z."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    inside = rows < num
    row_labels = tl.load(label_ptr + rows, mask=inside, other=-1)
    anchor = anchor_ptr + rows
    row_mass = tl.load(anchor + 2 * num, mask=inside, other=0.0)
    row_log2 = tl.load(anchor + 3 * num, mask=inside, other=float("inf"))
    row_pull = tl.load(anchor + 4 * num, mask=inside, other=0.0)
    row_inner = tl.load(anchor + 5 * num, mask=inside, other=0.0)
    row_inner_log2 = tl.load(anchor + 6 * num, mask=inside, other=float("inf"))
    x_MD, norm_M = _unit(z_ptr, rows, num, row_stride, column_stride, D, BD)
    factor_MD = x_MD
    if HALF:
        factor_MD = x_MD.to(tl.float16)
    grad_MD = tl.zeros((BM, BD), dtype=tl.float32)
    losses = tl.zeros((BN,), dtype=tl.float32)
    usable = tl.zeros((BN,), dtype=tl.float32)
    for start in range(0, num, BN):
        cols = start + tl.arange(0, BN)
        y_ND, _column_norm = _unit(z_ptr, cols, num, row_stride, column_stride, D, BD)
        y_ND = y_ND.to(factor_MD.dtype)
        s_MN = tl.dot(factor_MD, tl.trans(y_ND), input_precision=PRECISION)
        h_MN = coefficients(
            s_MN, True, row_labels, rows, cols, num, label_ptr,
            row_mass, row_log2, row_pull, row_inner, row_inner_log2, anchor_ptr + 2 * num,
            to_log2, pull_factor, k2, True, False, PULLS, INNER,
        )  # fmt: skip
        grad_MD = tl.dot(h_MN.to(y_ND.dtype), y_ND, grad_MD, input_precision=PRECISION)
        losses += tl.load(anchor_ptr + cols, mask=cols < num, other=0.0)
        usable += tl.where(tl.load(anchor_ptr + num + cols, mask=cols < num, other=0.0) > 0, 1.0, 0.0)

    divisor = 1.0
    if MEAN:
        divisor = tl.maximum(tl.sum(usable, axis=0), 1.0)
    if tl.program_id(0) == 0:
        tl.store(loss_ptr, tl.sum(losses, axis=0) / divisor)
    grad_MD = grad_MD / (temperature * scale * divisor)
    grad_MD = (grad_MD - x_MD * tl.sum(grad_MD * x_MD, axis=1)[:, None]) / norm_M[:, None]
    dims = tl.arange(0, BD)
    tl.store(grad_ptr + rows[:, None] * D + dims[None, :], grad_MD, mask=inside[:, None] & (dims[None, :] < D))
