"""The Triton kernels of queries against a queue: a walk over its tiles in splits, and what puts the splits together.

Shapes: M queries of a block, N places of a tile, D embedding size (padded), S splits (padded).
"""

import triton
import triton.language as tl

from contune.kernels.tiles import LOG2_E


@triton.jit
def walk_kernel(
    q_ptr, x_ptr, top_ptr, sum_ptr, mean_ptr, num_rows, num_cols, cols_per_split, to_log2,
    D: tl.constexpr, BD: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Of a block and a split: the largest logit (base 2), Σ exp2(logit - largest), and that sum weighted by places."""
    split = tl.program_id(1)
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    dims = tl.arange(0, BD)
    inside = (rows[:, None] < num_rows) & (dims[None, :] < D)
    q_MD = tl.load(q_ptr + rows[:, None] * D + dims[None, :], mask=inside, other=0.0)
    top = tl.full((BM,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((BM,), dtype=tl.float32)
    weighted_MD = tl.zeros((BM, BD), dtype=tl.float32)
    first = split * cols_per_split
    for start in range(first, tl.minimum(first + cols_per_split, num_cols), BN):
        cols = start + tl.arange(0, BN)
        here = (cols[:, None] < num_cols) & (dims[None, :] < D)
        x_ND = tl.load(x_ptr + cols[:, None].to(tl.int64) * D + dims[None, :], mask=here, other=0.0)
        logit_MN = tl.dot(q_MD, tl.trans(x_ND)) * to_log2
        logit_MN = tl.where(cols[None, :] < num_cols, logit_MN, float("-inf"))
        new_top = tl.maximum(top, tl.max(logit_MN, axis=1))
        shrink = tl.exp2(top - new_top)
        share_MN = tl.exp2(logit_MN - new_top[:, None])
        total = total * shrink + tl.sum(share_MN, axis=1)
        weighted_MD = tl.dot(share_MN.to(x_ND.dtype), x_ND, weighted_MD * shrink[:, None])
        top = new_top
    at = split * num_rows + rows
    tl.store(top_ptr + at, top, mask=rows < num_rows)
    tl.store(sum_ptr + at, total, mask=rows < num_rows)
    tl.store(mean_ptr + at[:, None].to(tl.int64) * D + dims[None, :], weighted_MD, mask=inside)


@triton.jit
def finish_kernel(
    top_ptr, sum_ptr, part_ptr, log_sum_ptr, mean_ptr, num_rows, num_splits,
    D: tl.constexpr, BS: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    """Of one query: the logarithm of the sum over all splits, and some dimensions of the mean place."""
    row, splits = tl.program_id(0), tl.arange(0, BS)
    dims = tl.program_id(1) * BD + tl.arange(0, BD)
    there = splits < num_splits
    at = splits * num_rows + row
    top_S = tl.load(top_ptr + at, mask=there, other=float("-inf"))
    top = tl.max(top_S, axis=0)
    weight_S = tl.exp2(top_S - top)
    total = tl.sum(weight_S * tl.load(sum_ptr + at, mask=there, other=0.0), axis=0)
    inside = there[:, None] & (dims[None, :] < D)
    part_SD = tl.load(part_ptr + at[:, None].to(tl.int64) * D + dims[None, :], mask=inside, other=0.0)
    mean_D = tl.sum(weight_S[:, None] * part_SD, axis=0) / total
    tl.store(mean_ptr + row * D + dims, mean_D, mask=dims < D)
    if tl.program_id(1) == 0:
        tl.store(log_sum_ptr + row, (tl.log2(total) + top) / LOG2_E)
