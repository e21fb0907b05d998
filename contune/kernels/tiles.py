"""The Triton kernels: one program a block of anchors, which walks over tiles of candidates.

Shapes: M anchors of a block, N candidates of a tile, D embedding size (padded to a power of two). Exponentials are
powers of two, so arguments called `_log2` are logarithms to base 2 and `to_log2` is log2(e)/τ. README.md beside
this file derives what is computed.
"""

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def _similarities(
    x_ptr, y_ptr, x_MD, rows, cols, num_rows, num_cols,
    D: tl.constexpr, BD: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    RESIDENT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Dot products of a block and a tile, and the tile itself where it fits whole."""
    dims = tl.arange(0, BD)
    if RESIDENT:
        y_ND = tl.load(
            y_ptr + cols[:, None] * D + dims[None, :], mask=(cols[:, None] < num_cols) & (dims[None, :] < D), other=0.0
        )
        return tl.dot(x_MD, tl.trans(y_ND), input_precision=PRECISION), y_ND
    s_MN = tl.zeros((BM, BN), dtype=tl.float32)
    y_ND = tl.load(
        y_ptr + cols[:, None] * D + dims[None, :], mask=(cols[:, None] < num_cols) & (dims[None, :] < D), other=0.0
    )
    for start in range(0, D, BD):
        at = start + dims
        xk_MD = tl.load(
            x_ptr + rows[:, None] * D + at[None, :], mask=(rows[:, None] < num_rows) & (at[None, :] < D), other=0.0
        )
        yk_ND = tl.load(
            y_ptr + cols[:, None] * D + at[None, :], mask=(cols[:, None] < num_cols) & (at[None, :] < D), other=0.0
        )
        s_MN = tl.dot(xk_MD, tl.trans(yk_ND), s_MN, input_precision=PRECISION)
    return s_MN, y_ND


@triton.jit
def statistics_kernel(
    x_ptr, y_ptr, row_label_ptr, column_label_ptr, self_ptr, band_ptr, out_ptr,
    num_rows, num_cols, cols_per_split, self_start, to_log2, k1, k2,
    D: tl.constexpr, BD: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    RESIDENT: tl.constexpr, SORTED: tl.constexpr, HAS_SELF: tl.constexpr, SHIFTED: tl.constexpr,
    PULLS: tl.constexpr, INNER: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """For each anchor and split of the columns: top, D, Σ s, the count, inner top and Σ exp(s/τ) of its positives.

    The tops, to base 2, were subtracted from the exponents of D and of the last sum: 0 unless SHIFTED.
    """
    block, split = tl.program_id(0), tl.program_id(1)
    rows = block * BM + tl.arange(0, BM)
    dims = tl.arange(0, BD)
    row_labels = tl.load(row_label_ptr + rows, mask=rows < num_rows, other=-1)
    own = rows + self_start
    if HAS_SELF and SORTED:
        own = tl.load(self_ptr + rows, mask=rows < num_rows, other=-1)
    band_low, band_high = 0, num_cols
    if SORTED:
        band_low, band_high = tl.load(band_ptr + 2 * block), tl.load(band_ptr + 2 * block + 1)
    x_MD = tl.load(
        x_ptr + rows[:, None] * D + dims[None, :], mask=(rows[:, None] < num_rows) & (dims[None, :] < D), other=0.0
    )

    top = tl.zeros((BM,), dtype=tl.float32)
    if SHIFTED:
        top -= float("inf")
    denominator = tl.zeros((BM,), dtype=tl.float32)
    similarity = tl.zeros((BM,), dtype=tl.float32)
    count = tl.zeros((BM,), dtype=tl.float32)
    inner = tl.zeros((BM,), dtype=tl.float32)
    inner_top = top
    first = split * cols_per_split
    last = tl.minimum(first + cols_per_split, num_cols)
    for start in range(first, last, BN):
        cols = start + tl.arange(0, BN)
        s_MN, _ = _similarities(x_ptr, y_ptr, x_MD, rows, cols, num_rows, num_cols, D, BD, BM, BN, RESIDENT, PRECISION)
        logit_MN = s_MN * to_log2
        banded = (start < band_high) & (start + BN > band_low)
        if banded | (start + BN > last):
            column_labels = tl.load(column_label_ptr + cols, mask=cols < last, other=-2)
            inside = cols < last
            same_MN = (row_labels[:, None] == column_labels[None, :]) & inside[None, :]
            positive_MN = same_MN
            if HAS_SELF:
                positive_MN = same_MN & (own[:, None] != cols[None, :])
            negative_MN = (row_labels[:, None] != column_labels[None, :]) & inside[None, :]
            if SHIFTED:
                largest_MN = tl.where(positive_MN | negative_MN, logit_MN, float("-inf"))
                if PULLS:
                    largest_MN = tl.maximum(
                        largest_MN, tl.where(positive_MN, tl.log2(k1) - s_MN * LOG2_E, float("-inf"))
                    )
                new_top = tl.maximum(top, tl.max(largest_MN, axis=1))
                # A row that has met nothing yet keeps an arbitrary finite top.
                new_top = tl.where(new_top == float("-inf"), -1.0e30, new_top)
                denominator, top = denominator * tl.exp2(top - new_top), new_top
            if INNER:
                # A sum of its own top: positives may all be far below the nearest negative.
                inner_MN = tl.where(positive_MN, logit_MN, float("-inf"))
                if SHIFTED:
                    new_top = tl.maximum(inner_top, tl.max(inner_MN, axis=1))
                    new_top = tl.where(new_top == float("-inf"), -1.0e30, new_top)
                    inner, inner_top = inner * tl.exp2(inner_top - new_top), new_top
                    inner_MN -= inner_top[:, None]
                inner += tl.sum(tl.exp2(inner_MN), axis=1)
            if SHIFTED:
                logit_MN -= top[:, None]
            exp_MN = tl.exp2(logit_MN)
            part_MN = tl.where(negative_MN, k2 * exp_MN, 0.0) + tl.where(positive_MN, exp_MN, 0.0)
            if PULLS:
                pull_MN = k1 * tl.exp2(-s_MN * LOG2_E)
                if SHIFTED:
                    pull_MN = tl.exp2(tl.log2(k1) - s_MN * LOG2_E - top[:, None])
                part_MN += tl.where(positive_MN, pull_MN, 0.0)
            denominator += tl.sum(part_MN, axis=1)
            similarity += tl.sum(tl.where(positive_MN, s_MN, 0.0), axis=1)
            count += tl.sum(tl.where(positive_MN, 1.0, 0.0), axis=1)
        else:
            if SHIFTED:
                new_top = tl.maximum(top, tl.max(logit_MN, axis=1))
                denominator, top = denominator * tl.exp2(top - new_top), new_top
                logit_MN -= top[:, None]
            denominator += k2 * tl.sum(tl.exp2(logit_MN), axis=1)

    out = out_ptr + split * 6 * num_rows + rows
    tl.store(out, top, mask=rows < num_rows)
    tl.store(out + num_rows, denominator, mask=rows < num_rows)
    tl.store(out + 2 * num_rows, similarity, mask=rows < num_rows)
    tl.store(out + 3 * num_rows, count, mask=rows < num_rows)
    tl.store(out + 4 * num_rows, inner_top, mask=rows < num_rows)
    tl.store(out + 5 * num_rows, inner, mask=rows < num_rows)


@triton.jit
def coefficients(
    s_MN, banded, row_labels, own, cols, num_cols, column_label_ptr,
    row_mass, row_log2, row_pull, row_inner, row_inner_log2, column_ptr,
    to_log2, pull_factor, k2,
    HAS_SELF: tl.constexpr, SHIFTED: tl.constexpr, PULLS: tl.constexpr, INNER: tl.constexpr,
):  # fmt: skip
    """τ times the gradient of the losses with respect to the similarities of a tile, from rows and columns."""
    inside = cols < num_cols
    column_mass = tl.load(column_ptr + cols, mask=inside, other=0.0)
    column_log2 = tl.load(column_ptr + num_cols + cols, mask=inside, other=float("inf"))
    logit_MN = s_MN * to_log2
    if SHIFTED:
        h_MN = row_mass[:, None] * tl.exp2(logit_MN - row_log2[:, None])
        h_MN += column_mass[None, :] * tl.exp2(logit_MN - column_log2[None, :])
    else:
        h_MN = (row_mass[:, None] + column_mass[None, :]) * tl.exp2(logit_MN)
    if banded:
        column_labels = tl.load(column_label_ptr + cols, mask=inside, other=-2)
        same_MN = row_labels[:, None] == column_labels[None, :]
        attracted_MN = h_MN
        if PULLS:
            minus_MN = -s_MN * LOG2_E
            if SHIFTED:
                # The factor goes into the exponent: without it a huge k1 leaves only what a GPU rounds to 0.
                minus_MN += tl.log2(pull_factor)
                attracted_MN -= row_mass[:, None] * tl.exp2(minus_MN - row_log2[:, None])
                attracted_MN -= column_mass[None, :] * tl.exp2(minus_MN - column_log2[None, :])
            else:
                attracted_MN -= pull_factor * (row_mass[:, None] + column_mass[None, :]) * tl.exp2(minus_MN)
        if INNER:
            column_inner = tl.load(column_ptr + 3 * num_cols + cols, mask=inside, other=0.0)
            column_inner_log2 = tl.load(column_ptr + 4 * num_cols + cols, mask=inside, other=float("inf"))
            attracted_MN -= row_inner[:, None] * tl.exp2(logit_MN - row_inner_log2[:, None])
            attracted_MN -= column_inner[None, :] * tl.exp2(logit_MN - column_inner_log2[None, :])
        else:
            column_pull = tl.load(column_ptr + 2 * num_cols + cols, mask=inside, other=0.0)
            attracted_MN -= row_pull[:, None] + column_pull[None, :]
        h_MN = tl.where(same_MN, attracted_MN, k2 * h_MN)
        # Columns past the end weigh nothing, and must not, in float16, be an infinity times a padded 0.
        h_MN = tl.where(inside[None, :], h_MN, 0.0)
        if HAS_SELF:
            h_MN = tl.where(own[:, None] == cols[None, :], 0.0, h_MN)
    else:
        h_MN = k2 * h_MN
    return h_MN


@triton.jit
def gradient_kernel(
    x_ptr, y_ptr, row_label_ptr, column_label_ptr, self_ptr, band_ptr, row_ptr, column_ptr, out_ptr,
    num_rows, num_cols, cols_per_split, self_start, to_log2, pull_factor, k2, first_row, stop_row,
    D: tl.constexpr, BD: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    RESIDENT: tl.constexpr, SORTED: tl.constexpr, HAS_SELF: tl.constexpr, SHIFTED: tl.constexpr,
    PULLS: tl.constexpr, INNER: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """RESIDENT: a block's gradient, summed over a split of the columns, to out (splits, R, D).

    Otherwise, where a block's gradient does not fit in registers, the coefficients themselves, for rows
    first_row..stop_row-1, to out (stop_row - first_row, C); a library's matrix product does the rest.
    """
    block, split = tl.program_id(0) + first_row // BM, tl.program_id(1)
    rows = block * BM + tl.arange(0, BM)
    inside = rows < stop_row
    dims = tl.arange(0, BD)
    row_labels = tl.load(row_label_ptr + rows, mask=inside, other=-1)
    own = rows + self_start
    if HAS_SELF and SORTED:
        own = tl.load(self_ptr + rows, mask=inside, other=-1)
    band_low, band_high = 0, num_cols
    if SORTED:
        band_low, band_high = tl.load(band_ptr + 2 * block), tl.load(band_ptr + 2 * block + 1)
    row_mass = tl.load(row_ptr + rows, mask=inside, other=0.0)
    row_log2 = tl.load(row_ptr + num_rows + rows, mask=inside, other=float("inf"))
    row_pull = tl.load(row_ptr + 2 * num_rows + rows, mask=inside, other=0.0)
    row_inner = tl.load(row_ptr + 3 * num_rows + rows, mask=inside, other=0.0)
    row_inner_log2 = tl.load(row_ptr + 4 * num_rows + rows, mask=inside, other=float("inf"))
    x_MD = tl.load(x_ptr + rows[:, None] * D + dims[None, :], mask=inside[:, None] & (dims[None, :] < D), other=0.0)

    grad_MD = tl.zeros((BM, BD), dtype=tl.float32)
    first = split * cols_per_split
    last = tl.minimum(first + cols_per_split, num_cols)
    for start in range(first, last, BN):
        cols = start + tl.arange(0, BN)
        s_MN, y_ND = _similarities(
            x_ptr, y_ptr, x_MD, rows, cols, num_rows, num_cols, D, BD, BM, BN, RESIDENT, PRECISION
        )
        banded = ((start < band_high) & (start + BN > band_low)) | (start + BN > num_cols)
        h_MN = coefficients(
            s_MN, banded, row_labels, own, cols, num_cols, column_label_ptr,
            row_mass, row_log2, row_pull, row_inner, row_inner_log2, column_ptr,
            to_log2, pull_factor, k2, HAS_SELF, SHIFTED, PULLS, INNER,
        )  # fmt: skip
        if RESIDENT:
            grad_MD = tl.dot(h_MN.to(y_ND.dtype), y_ND, grad_MD, input_precision=PRECISION)
        else:
            at = (rows - first_row)[:, None].to(tl.int64) * num_cols + cols[None, :]
            tl.store(out_ptr + at, h_MN.to(out_ptr.dtype.element_ty), mask=inside[:, None] & (cols[None, :] < num_cols))
    if RESIDENT:
        at = (split * num_rows + rows)[:, None].to(tl.int64) * D + dims[None, :]
        tl.store(out_ptr + at, grad_MD, mask=inside[:, None] & (dims[None, :] < D))
