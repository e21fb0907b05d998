"""Triton kernels that work row by row: what comes before, between and after the walks over tiles.

Each replaces a handful of small torch operations, whose launches would take longer than the work at batch sizes
people train with. Shapes: R anchors, S splits of the columns, D embedding size.
"""

import triton
import triton.language as tl

from contune.kernels import lengths

LOG2_E = tl.constexpr(1.4426950408889634)
SHORTEST = tl.constexpr(lengths.SHORTEST)


@triton.jit
def divisor(z_RD):
    """As `lengths` has it."""
    norm_R = tl.sqrt(tl.sum(z_RD * z_RD, axis=1))
    return tl.where(norm_R < SHORTEST, float("inf"), norm_R)


@triton.jit
def prepare_kernel(
    z_ptr, x_ptr, norm_ptr, num_rows, row_stride, column_stride, D: tl.constexpr, BD: tl.constexpr, BM: tl.constexpr
):
    """x = z / |z| in the type of x, and the lengths."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    dims = tl.arange(0, BD)
    inside = (rows[:, None] < num_rows) & (dims[None, :] < D)
    at = rows[:, None].to(tl.int64) * row_stride + dims[None, :] * column_stride
    z_RD = tl.load(z_ptr + at, mask=inside, other=0.0).to(tl.float32)
    norm_R = divisor(z_RD)
    x_RD = z_RD / norm_R[:, None]
    out = rows[:, None].to(tl.int64) * D + dims[None, :]
    tl.store(x_ptr + out, x_RD.to(x_ptr.dtype.element_ty), mask=inside)
    tl.store(norm_ptr + rows, norm_R, mask=rows < num_rows)


@triton.jit
def finish_statistics_kernel(
    part_ptr, order_ptr, out_ptr, num_rows, num_splits, temperature,
    SORTED: tl.constexpr, INNER: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The splits of `statistics_kernel` put together, in the caller's order: loss, log D, count, log S."""
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = rows < num_rows
    top = tl.full((BLOCK,), float("-inf"), dtype=tl.float32)
    inner_top = top
    for split in range(num_splits):
        part = part_ptr + split * 6 * num_rows + rows
        top = tl.maximum(top, tl.load(part, mask=inside, other=0.0))
        inner_top = tl.maximum(inner_top, tl.load(part + 4 * num_rows, mask=inside, other=0.0))
    denominator = tl.zeros((BLOCK,), dtype=tl.float32)
    similarity = tl.zeros((BLOCK,), dtype=tl.float32)
    count = tl.zeros((BLOCK,), dtype=tl.float32)
    inner = tl.zeros((BLOCK,), dtype=tl.float32)
    for split in range(num_splits):
        part = part_ptr + split * 6 * num_rows + rows
        shrink = tl.exp2(tl.load(part, mask=inside, other=0.0) - top)
        denominator += shrink * tl.load(part + num_rows, mask=inside, other=0.0)
        similarity += tl.load(part + 2 * num_rows, mask=inside, other=0.0)
        count += tl.load(part + 3 * num_rows, mask=inside, other=0.0)
        shrink = tl.exp2(tl.load(part + 4 * num_rows, mask=inside, other=0.0) - inner_top)
        inner += shrink * tl.load(part + 5 * num_rows, mask=inside, other=0.0)
    usable = count > 0
    log_D = (tl.log2(tl.where(usable, denominator, 1.0)) + top) / LOG2_E
    log_S = (tl.log2(tl.where(inner > 0, inner, 1.0)) + inner_top) / LOG2_E
    safe_count = tl.where(usable, count, 1.0)
    attraction = similarity / (temperature * safe_count)
    if INNER:
        attraction = log_S - tl.log2(safe_count) / LOG2_E
    at = rows
    if SORTED:
        at = tl.load(order_ptr + rows, mask=inside, other=0)
    tl.store(out_ptr + at, tl.where(usable, log_D - attraction, 0.0), mask=inside)
    tl.store(out_ptr + num_rows + at, log_D, mask=inside)
    tl.store(out_ptr + 2 * num_rows + at, count, mask=inside)
    tl.store(out_ptr + 3 * num_rows + at, log_S, mask=inside)


@triton.jit
def reduce_kernel(loss_ptr, count_ptr, total_ptr, usable_ptr, num_rows, MEAN: tl.constexpr, BLOCK: tl.constexpr):
    """Sum or mean of the losses, and the number of usable anchors, at least 1; one program, so the order is fixed."""
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    usable = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, num_rows, BLOCK):
        rows = start + tl.arange(0, BLOCK)
        total += tl.load(loss_ptr + rows, mask=rows < num_rows, other=0.0)
        usable += tl.where(tl.load(count_ptr + rows, mask=rows < num_rows, other=0.0) > 0, 1.0, 0.0)
    loss = tl.sum(total, axis=0)
    num_usable = tl.maximum(tl.sum(usable, axis=0), 1.0)
    if MEAN:
        loss = loss / num_usable
    tl.store(total_ptr, loss)
    tl.store(usable_ptr, num_usable)


@triton.jit
def pack_kernel(
    upstream_ptr, divisor_ptr, log_D_ptr, total_ptr, log_S_ptr, order_ptr, largest_ptr, scale_ptr, out_ptr,
    num_rows, upstream_stride,
    SORTED: tl.constexpr, SHIFTED: tl.constexpr, HALF_SCALE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Anchors as `gradient_kernel` reads them: mass, shift, pull, inner mass, inner shift.

    With a HALF_SCALE everything is scaled so that the largest upstream gradient becomes that; the factor is kept.
    """
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = rows < num_rows
    at = rows
    if SORTED:
        at = tl.load(order_ptr + rows, mask=inside, other=0)
    total = tl.load(total_ptr + at, mask=inside, other=0.0)
    usable = total > 0
    divisor = tl.load(divisor_ptr)
    scale = divisor * 0.0 + 1.0
    if HALF_SCALE > 0:
        scale = HALF_SCALE * divisor / tl.maximum(tl.abs(tl.load(largest_ptr).to(tl.float32)), 1e-30)
    if tl.program_id(0) == 0:
        tl.store(scale_ptr, scale)
    weight = tl.load(upstream_ptr + at * upstream_stride, mask=inside, other=0.0).to(tl.float32) / divisor * scale
    weight = tl.where(usable, weight, 0.0)
    log_D = tl.where(usable, tl.load(log_D_ptr + at, mask=inside, other=0.0), float("inf"))
    log_S = tl.where(usable, tl.load(log_S_ptr + at, mask=inside, other=0.0), float("inf"))
    mass = weight
    if not SHIFTED:
        mass = weight * tl.exp2(-log_D * LOG2_E)
    tl.store(out_ptr + rows, mass, mask=inside)
    tl.store(out_ptr + num_rows + rows, log_D * LOG2_E, mask=inside)
    tl.store(out_ptr + 2 * num_rows + rows, weight / tl.where(usable, total, 1.0), mask=inside)
    tl.store(out_ptr + 3 * num_rows + rows, weight, mask=inside)
    tl.store(out_ptr + 4 * num_rows + rows, log_S * LOG2_E, mask=inside)


@triton.jit
def finish_gradient_kernel(
    part_ptr, x_ptr, norm_ptr, order_ptr, scale_ptr, out_ptr, num_rows, num_splits, temperature,
    D: tl.constexpr, BD: tl.constexpr, BM: tl.constexpr, SORTED: tl.constexpr, NORMALISED: tl.constexpr,
):  # fmt: skip
    """The splits of `gradient_kernel` put together, taken back through x = z / |z|, in the caller's order and type."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    dims = tl.arange(0, BD)
    inside = (rows[:, None] < num_rows) & (dims[None, :] < D)
    grad_RD = tl.zeros((BM, BD), dtype=tl.float32)
    for split in range(num_splits):
        at = (split * num_rows + rows)[:, None].to(tl.int64) * D + dims[None, :]
        grad_RD += tl.load(part_ptr + at, mask=inside, other=0.0)
    grad_RD = grad_RD / (temperature * tl.load(scale_ptr))
    target = rows
    if SORTED:
        target = tl.load(order_ptr + rows, mask=rows < num_rows, other=0)
    if NORMALISED:
        at = rows[:, None].to(tl.int64) * D + dims[None, :]
        x_RD = tl.load(x_ptr + at, mask=inside, other=0.0).to(tl.float32)
        norm_R = tl.load(norm_ptr + target, mask=rows < num_rows, other=1.0)
        grad_RD = (grad_RD - x_RD * tl.sum(grad_RD * x_RD, axis=1)[:, None]) / norm_R[:, None]
    out = target[:, None].to(tl.int64) * D + dims[None, :]
    tl.store(out_ptr + out, grad_RD.to(out_ptr.dtype.element_ty), mask=inside)
