"""All Triton kernels of the pair losses, which `fused` launches.

One program takes a block of anchors and walks over tiles of candidates. The formulas are helpers that kernels for any
batch and for small batches share: `load_unit` (input), `add_tile` (denominator), `anchor_loss`, `coefficients`
(gradient) and `through_norm`. README.md derives them. KIND is `LossSettings.kind`; where it is `auto`, k1 is r, and
where it is `sincere`, k1 is ε to base 2. `pull_factor` is τ k1, and ε to base 2 for `sincere`. CLASSES is the number of
columns of a label matrix, 0 for integer labels.

Shapes: M anchors of a block, N candidates of a tile, D embedding size (padded to a power of two), R anchors, S splits
of the columns. w_MN weighs the pairs of a tile, 1.0 with integer labels. Exponentials are powers of two: `_log2` marks
logarithms to base 2, and `to_log2` is log2(e)/τ.
"""

import triton
import triton.language as tl

from contune import kernels

LOG2_E = tl.constexpr(1.4426950408889634)
SHORTEST = tl.constexpr(kernels.SHORTEST)


@triton.jit
def load_rows(x_ptr, rows, num_rows, first_dim, D: tl.constexpr, BD: tl.constexpr):
    """BD dimensions of some rows, 0 outside."""
    dims = first_dim + tl.arange(0, BD)
    inside = (rows[:, None] < num_rows) & (dims[None, :] < D)
    return tl.load(x_ptr + rows[:, None] * D + dims[None, :], mask=inside, other=0.0)


@triton.jit
def load_unit(z_ptr, rows, num_rows, row_stride, column_stride, D: tl.constexpr, BD: tl.constexpr):
    """Embeddings normalized as `kernels.normalized` does it, and the lengths they had."""
    dims = tl.arange(0, BD)
    inside = (rows[:, None] < num_rows) & (dims[None, :] < D)
    z_RD = tl.load(z_ptr + rows[:, None] * row_stride + dims[None, :] * column_stride, mask=inside, other=0.0)
    z_RD = z_RD.to(tl.float32)
    norm_R = tl.sqrt(tl.sum(z_RD * z_RD, axis=1))
    norm_R = tl.where(norm_R == float("inf"), float("nan"), tl.where(norm_R < SHORTEST, float("inf"), norm_R))
    return z_RD / norm_R[:, None], norm_R


@triton.jit
def through_norm(grad_RD, x_RD, norm_R):
    """Back through x = z / |z|: the part along x is lost."""
    return (grad_RD - x_RD * tl.sum(grad_RD * x_RD, axis=1)[:, None]) / norm_R[:, None]


@triton.jit
def similarities(
    x_ptr, y_ptr, x_MD, rows, cols, num_rows, num_cols,
    D: tl.constexpr, BD: tl.constexpr, RESIDENT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Dot products of a block and a tile, and the tile itself if RESIDENT: whole rows fit."""
    y_ND = load_rows(y_ptr, cols, num_cols, 0, D, BD)
    if RESIDENT:
        return tl.dot(x_MD, tl.trans(y_ND), input_precision=PRECISION), y_ND
    s_MN = tl.zeros((rows.shape[0], cols.shape[0]), dtype=tl.float32)
    for start in range(0, D, BD):
        xk_MD = load_rows(x_ptr, rows, num_rows, start, D, BD)
        yk_ND = load_rows(y_ptr, cols, num_cols, start, D, BD)
        s_MN = tl.dot(xk_MD, tl.trans(yk_ND), s_MN, input_precision=PRECISION)
    return s_MN, y_ND


@triton.jit
def load_labels(label_ptr, rows, num_rows, CLASSES: tl.constexpr, BC: tl.constexpr):
    """Labels of a block's rows: integers (M,), or BC columns of a label matrix (M, BC), all of them if they fit."""
    if CLASSES > 0:
        labels = load_rows(label_ptr, rows, num_rows, 0, CLASSES, BC)
    else:
        labels = tl.load(label_ptr + rows, mask=rows < num_rows, other=-1)
    return labels


@triton.jit
def overlaps(
    row_label_ptr, column_label_ptr, row_labels, rows, first, cols, start, num_rows, num_cols,
    CLASSES: tl.constexpr, BC: tl.constexpr, HAS_SELF: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """w_MN: with a label matrix, the products of its rows; -1 for no pair, which few tiles have."""
    w_MN = 1.0
    if CLASSES > 0:
        w_MN, _ = similarities(
            row_label_ptr, column_label_ptr, row_labels, rows, cols, num_rows, num_cols,
            CLASSES, BC, CLASSES <= BC, PRECISION,
        )  # fmt: skip
        stop, own = start + cols.shape[0], first + tl.arange(0, rows.shape[0])
        if (stop > num_cols) | (HAS_SELF & (start < first + rows.shape[0]) & (stop > first)):
            w_MN = tl.where(cols[None, :] < num_cols, w_MN, -1.0)
            if HAS_SELF:
                w_MN = tl.where(own[:, None] == cols[None, :], -1.0, w_MN)
    return w_MN


@triton.jit
def pairs_of(w_MN, row_labels, own, cols, num_cols, column_label_ptr, HAS_SELF: tl.constexpr, CLASSES: tl.constexpr):
    """The positives and the negatives of a tile."""
    if CLASSES > 0:
        positive_MN, negative_MN = w_MN > 0, w_MN == 0
    else:
        inside = cols < num_cols
        alike_MN = row_labels[:, None] == tl.load(column_label_ptr + cols, mask=inside, other=-2)[None, :]
        positive_MN, negative_MN = alike_MN & inside[None, :], ~alike_MN & inside[None, :]
        if HAS_SELF:
            positive_MN = positive_MN & (own[:, None] != cols[None, :])
    return positive_MN, negative_MN


@triton.jit
def add_tile(
    s_MN, w_MN, banded, row_labels, own, cols, last, column_label_ptr,
    top, denominator, similarity, count, inner_top, inner, attracted, to_log2, k1, k2,
    HAS_SELF: tl.constexpr, SHIFTED: tl.constexpr, PULLS: tl.constexpr, KIND: tl.constexpr, CLASSES: tl.constexpr,
):  # fmt: skip
    """The sums over a row, with a tile added: top, D, and of the positives Σ w s, Σ w, inner top, inner, Σ exp(s/τ).

    If not `banded`, the tile has only negatives and lies inside. The inner sum is Σ w exp(s/τ) in `in` and Σ exp(-s) in
    `auto`, which alone needs the last sum. The tops, to base 2, are subtracted from the exponents: of the inner sum its
    own, of D and the last sum the other. They are 0 unless SHIFTED.
    """
    APART: tl.constexpr = KIND == "sincere" or KIND == "dcl"
    logit_MN = s_MN * to_log2
    if banded:
        positive_MN, negative_MN = pairs_of(w_MN, row_labels, own, cols, last, column_label_ptr, HAS_SELF, CLASSES)
        if SHIFTED:
            largest_MN = tl.where(negative_MN if APART else positive_MN | negative_MN, logit_MN, float("-inf"))
            if PULLS:
                pull_log2_MN = tl.where(positive_MN, tl.log2(k1) - s_MN * LOG2_E, float("-inf"))
                largest_MN = tl.maximum(largest_MN, pull_log2_MN)
            new_top = tl.maximum(top, tl.max(largest_MN, axis=1))
            # A row without any pair so far keeps an arbitrary finite top.
            new_top = tl.where(new_top == float("-inf"), -1.0e30, new_top)
            if KIND == "auto":
                attracted *= tl.exp2(top - new_top)
            denominator, top = denominator * tl.exp2(top - new_top), new_top
        if KIND == "in" or KIND == "auto":
            # A sum with its own top: positives may all be far below the nearest negative.
            inner_MN = tl.where(positive_MN, logit_MN if KIND == "in" else -s_MN * LOG2_E, float("-inf"))
            if SHIFTED:
                new_top = tl.maximum(inner_top, tl.max(inner_MN, axis=1))
                new_top = tl.where(new_top == float("-inf"), -1.0e30, new_top)
                inner, inner_top = inner * tl.exp2(inner_top - new_top), new_top
                inner_MN -= inner_top[:, None]
            inner_MN = tl.exp2(inner_MN)
            if KIND == "in":
                inner_MN *= w_MN
            inner += tl.sum(inner_MN, axis=1)
        if SHIFTED:
            logit_MN -= top[:, None]
        exp_MN = tl.exp2(logit_MN)
        near_MN = tl.zeros_like(exp_MN) if APART else exp_MN
        if KIND == "auto":
            attracted += tl.sum(tl.where(positive_MN, exp_MN, 0.0), axis=1)
            near_MN = (1 + k1) * exp_MN
        part_MN = tl.where(negative_MN, k2 * exp_MN, tl.where(positive_MN, near_MN, 0.0))
        if PULLS:
            pull_MN = k1 * tl.exp2(-s_MN * LOG2_E)
            if SHIFTED:
                pull_MN = tl.exp2(tl.log2(k1) - s_MN * LOG2_E - top[:, None])
            part_MN += tl.where(positive_MN, pull_MN, 0.0)
        denominator += tl.sum(part_MN, axis=1)
        similarity += tl.sum(tl.where(positive_MN, w_MN * s_MN, 0.0), axis=1)
        count += tl.sum(tl.where(positive_MN, w_MN, 0.0), axis=1)
    else:
        if SHIFTED:
            new_top = tl.maximum(top, tl.max(logit_MN, axis=1))
            if KIND == "auto":
                attracted *= tl.exp2(top - new_top)
            denominator, top = denominator * tl.exp2(top - new_top), new_top
            logit_MN -= top[:, None]
        denominator += k2 * tl.sum(tl.exp2(logit_MN), axis=1)
    return top, denominator, similarity, count, inner_top, inner, attracted


@triton.jit
def anchor_loss(top, denominator, similarity, count, inner_top, inner, attracted, temperature, KIND: tl.constexpr):
    """Loss, log D, log S (base 2) and count from the sums over a whole row; of `sincere` what it shares with `dcl`."""
    usable = count > 0
    if KIND == "sincere" or KIND == "dcl":
        count = tl.where(denominator == 0, 0.0, count)  # no negative; a NaN stays one
        usable = count > 0
    log2_D = tl.log2(tl.where(usable, denominator, 1.0)) + top
    log2_S = tl.log2(tl.where(inner != 0, inner, 1.0)) + inner_top
    safe_count = tl.where(usable, count, 1.0)
    attraction = similarity / (temperature * safe_count)
    if KIND == "in":
        attraction = (log2_S - tl.log2(safe_count)) / LOG2_E
    if KIND == "auto":
        log2_S += log2_D - top - tl.log2(attracted)
    if KIND == "sincere":
        log2_S = log2_D
    return tl.where(usable, log2_D / LOG2_E - attraction, 0.0), log2_D, log2_S, count


@triton.jit
def add_margins(
    s_MN, w_MN, row_labels, own, cols, last, column_label_ptr, log2_N, loss, share, to_log2, k1,
    HAS_SELF: tl.constexpr, CLASSES: tl.constexpr,
):  # fmt: skip
    """`sincere`, with a tile added: Σ w log2(1 + exp(m)), Σ w / (1 + exp(-m)) over positives, m = log N + ε - s/τ."""
    positive_MN, _ = pairs_of(w_MN, row_labels, own, cols, last, column_label_ptr, HAS_SELF, CLASSES)
    margin_MN = log2_N[:, None] + k1 - s_MN * to_log2
    loss_MN = tl.maximum(margin_MN, 0.0) + tl.log2(1.0 + tl.exp2(-tl.abs(margin_MN)))
    loss += tl.sum(tl.where(positive_MN, w_MN * loss_MN, 0.0), axis=1)
    share += tl.sum(tl.where(positive_MN, w_MN / (1.0 + tl.exp2(-margin_MN)), 0.0), axis=1)
    return loss, share


@triton.jit
def margin_loss(loss, share, count, log2_N, k1):
    """The loss and log D (base 2) of `sincere` from the sums of `add_margins`."""
    usable = count > 0
    safe_count = tl.where(usable, count, 1.0)
    return tl.where(usable, (loss / safe_count - k1) / LOG2_E, 0.0), log2_N - tl.log2(share / safe_count)


@triton.jit
def store_factors(out_ptr, rows, num_rows, weight, count, log2_D, log2_S, SHIFTED: tl.constexpr, KIND: tl.constexpr):
    """Anchors as `coefficients` reads them, (5, R): mass, shift, pull, inner mass, inner shift.

    Infinite shifts make every term of an anchor without a positive an exact 0.
    """
    usable, inside, out = count > 0, rows < num_rows, out_ptr + rows
    weight = tl.where(usable, weight, 0.0)
    log2_D = tl.where(usable, log2_D, float("inf"))
    log2_S = tl.where(usable, log2_S, float("inf"))
    mass, inner = weight, weight
    if not SHIFTED:
        mass = weight * tl.exp2(-log2_D)
        if KIND == "auto":
            inner = weight * tl.exp2(-log2_S)
    tl.store(out, mass, mask=inside)
    tl.store(out + num_rows, log2_D, mask=inside)
    tl.store(out + 2 * num_rows, weight / tl.where(usable, count, 1.0), mask=inside)
    tl.store(out + 3 * num_rows, inner, mask=inside)
    tl.store(out + 4 * num_rows, log2_S, mask=inside)


@triton.jit
def load_factors(factor_ptr, rows, num_rows, inside):
    at = factor_ptr + rows
    mass = tl.load(at, mask=inside, other=0.0)
    shift = tl.load(at + num_rows, mask=inside, other=float("inf"))
    pull = tl.load(at + 2 * num_rows, mask=inside, other=0.0)
    inner = tl.load(at + 3 * num_rows, mask=inside, other=0.0)
    inner_shift = tl.load(at + 4 * num_rows, mask=inside, other=float("inf"))
    return mass, shift, pull, inner, inner_shift


@triton.jit
def coefficients(
    s_MN, w_MN, banded, row_labels, own, cols, num_cols, column_label_ptr,
    row_mass, row_shift, row_pull, row_inner, row_inner_shift, column_ptr,
    to_log2, pull_factor, k2,
    HAS_SELF: tl.constexpr, SHIFTED: tl.constexpr, PULLS: tl.constexpr, KIND: tl.constexpr, CLASSES: tl.constexpr,
):  # fmt: skip
    """τ times the gradient of the losses with respect to the similarities of a tile, from rows and columns."""
    inside = cols < num_cols
    column_mass = tl.load(column_ptr + cols, mask=inside, other=0.0)
    column_shift = tl.load(column_ptr + num_cols + cols, mask=inside, other=float("inf"))
    logit_MN = s_MN * to_log2
    if SHIFTED:
        h_MN = row_mass[:, None] * tl.exp2(logit_MN - row_shift[:, None])
        h_MN += column_mass[None, :] * tl.exp2(logit_MN - column_shift[None, :])
    else:
        h_MN = (row_mass[:, None] + column_mass[None, :]) * tl.exp2(logit_MN)
    if banded:
        if KIND == "in" or KIND == "auto":
            column_inner = tl.load(column_ptr + 3 * num_cols + cols, mask=inside, other=0.0)
        if KIND == "in" or KIND == "auto" or KIND == "sincere":
            column_inner_shift = tl.load(column_ptr + 4 * num_cols + cols, mask=inside, other=float("inf"))
        attracted_MN = tl.zeros_like(h_MN) if KIND == "sincere" or KIND == "dcl" else h_MN
        if KIND == "auto":
            minus_MN = -s_MN * LOG2_E
            if SHIFTED:
                attracted_MN -= pull_factor * row_inner[:, None] * tl.exp2(minus_MN - row_inner_shift[:, None])
                attracted_MN -= pull_factor * column_inner[None, :] * tl.exp2(minus_MN - column_inner_shift[None, :])
            else:
                attracted_MN -= pull_factor * (row_inner[:, None] + column_inner[None, :]) * tl.exp2(minus_MN)
        if PULLS:
            minus_MN = -s_MN * LOG2_E
            if SHIFTED:
                # The factor goes into the exponent: without it a huge k1 leaves only what a GPU rounds to 0.
                minus_MN += tl.log2(pull_factor)
                attracted_MN -= row_mass[:, None] * tl.exp2(minus_MN - row_shift[:, None])
                attracted_MN -= column_mass[None, :] * tl.exp2(minus_MN - column_shift[None, :])
            else:
                attracted_MN -= pull_factor * (row_mass[:, None] + column_mass[None, :]) * tl.exp2(minus_MN)
        if KIND == "sincere":
            column_pull = tl.load(column_ptr + 2 * num_cols + cols, mask=inside, other=0.0)
            near_MN = logit_MN - pull_factor
            attracted_MN -= w_MN * (row_pull[:, None] / (1.0 + tl.exp2(near_MN - row_inner_shift[:, None])))
            attracted_MN -= w_MN * (column_pull[None, :] / (1.0 + tl.exp2(near_MN - column_inner_shift[None, :])))
        elif KIND == "in":
            attracted_MN -= w_MN * (row_inner[:, None] * tl.exp2(logit_MN - row_inner_shift[:, None]))
            attracted_MN -= w_MN * (column_inner[None, :] * tl.exp2(logit_MN - column_inner_shift[None, :]))
        else:
            column_pull = tl.load(column_ptr + 2 * num_cols + cols, mask=inside, other=0.0)
            attracted_MN -= w_MN * (row_pull[:, None] + column_pull[None, :])
        # Columns past the end weigh nothing, and in float16 they must not be an infinity times a padded 0.
        positive_MN, negative_MN = pairs_of(w_MN, row_labels, own, cols, num_cols, column_label_ptr, HAS_SELF, CLASSES)
        h_MN = tl.where(positive_MN, attracted_MN, tl.where(negative_MN, k2 * h_MN, 0.0))
    else:
        h_MN = k2 * h_MN
    return h_MN


@triton.jit
def prepare_kernel(
    z_ptr, x_ptr, norm_ptr, num_rows, row_stride, column_stride, D: tl.constexpr, BD: tl.constexpr, BM: tl.constexpr
):
    """x = z / |z| in the type of x, and the lengths."""
    rows = (tl.program_id(0) * BM + tl.arange(0, BM)).to(tl.int64)
    x_RD, norm_R = load_unit(z_ptr, rows, num_rows, row_stride, column_stride, D, BD)
    dims = tl.arange(0, BD)
    inside = (rows[:, None] < num_rows) & (dims[None, :] < D)
    tl.store(x_ptr + rows[:, None] * D + dims[None, :], x_RD.to(x_ptr.dtype.element_ty), mask=inside)
    tl.store(norm_ptr + rows, norm_R, mask=rows < num_rows)


@triton.jit
def load_block(
    row_label_ptr, own_ptr, band_ptr, block, rows, stop_row, num_cols, self_start,
    HAS_SELF: tl.constexpr, SORTED: tl.constexpr, CLASSES: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Labels of a block's rows, the columns where they meet themselves, and the band with their positives."""
    row_labels = load_labels(row_label_ptr, rows, stop_row, CLASSES, BC)
    own = rows + self_start
    if HAS_SELF and SORTED:
        own = tl.load(own_ptr + rows, mask=rows < stop_row, other=-1)
    band_low, band_high = 0, num_cols
    if SORTED:
        band_low, band_high = tl.load(band_ptr + 2 * block), tl.load(band_ptr + 2 * block + 1)
    return row_labels, own, band_low, band_high


@triton.jit
def statistics_kernel(
    x_ptr, y_ptr, row_label_ptr, column_label_ptr, own_ptr, band_ptr, out_ptr,
    num_rows, num_cols, cols_per_split, self_start, to_log2, k1, k2,
    D: tl.constexpr, BD: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    RESIDENT: tl.constexpr, SORTED: tl.constexpr, HAS_SELF: tl.constexpr, SHIFTED: tl.constexpr,
    PULLS: tl.constexpr, KIND: tl.constexpr, PRECISION: tl.constexpr, CLASSES: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """The sums of `add_tile` for each anchor and split of the columns, (S, 7, R)."""
    block, split = tl.program_id(0), tl.program_id(1)
    rows = block * BM + tl.arange(0, BM)
    row_labels, own, band_low, band_high = load_block(
        row_label_ptr, own_ptr, band_ptr, block, rows, num_rows, num_cols, self_start, HAS_SELF, SORTED, CLASSES, BC
    )
    x_MD = load_rows(x_ptr, rows, num_rows, 0, D, BD)
    zeros = tl.zeros((BM,), dtype=tl.float32)
    top, denominator, similarity, count, inner, attracted = zeros, zeros, zeros, zeros, zeros, zeros
    if SHIFTED:
        top -= float("inf")
    inner_top = top
    first = split * cols_per_split
    last = tl.minimum(first + cols_per_split, num_cols)
    for start in range(first, last, BN):
        cols = start + tl.arange(0, BN)
        s_MN, _ = similarities(x_ptr, y_ptr, x_MD, rows, cols, num_rows, num_cols, D, BD, RESIDENT, PRECISION)
        w_MN = overlaps(
            row_label_ptr, column_label_ptr, row_labels, rows, block * BM + self_start, cols, start, num_rows, num_cols,
            CLASSES, BC, HAS_SELF, PRECISION,
        )  # fmt: skip
        banded = CLASSES > 0 or ((start < band_high) & (start + BN > band_low)) | (start + BN > last)
        top, denominator, similarity, count, inner_top, inner, attracted = add_tile(
            s_MN, w_MN, banded, row_labels, own, cols, last, column_label_ptr,
            top, denominator, similarity, count, inner_top, inner, attracted,
            to_log2, k1, k2, HAS_SELF, SHIFTED, PULLS, KIND, CLASSES,
        )  # fmt: skip
    out = out_ptr + split * 7 * num_rows + rows
    tl.store(out, top, mask=rows < num_rows)
    tl.store(out + num_rows, denominator, mask=rows < num_rows)
    tl.store(out + 2 * num_rows, similarity, mask=rows < num_rows)
    tl.store(out + 3 * num_rows, count, mask=rows < num_rows)
    tl.store(out + 4 * num_rows, inner_top, mask=rows < num_rows)
    tl.store(out + 5 * num_rows, inner, mask=rows < num_rows)
    tl.store(out + 6 * num_rows, attracted, mask=rows < num_rows)


@triton.jit
def finish_statistics_kernel(
    part_ptr, order_ptr, out_ptr, num_rows, num_splits, temperature,
    SORTED: tl.constexpr, KIND: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The splits of `statistics_kernel` put together, in the caller's order: loss, log D, count, log S."""
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = rows < num_rows
    top = tl.full((BLOCK,), float("-inf"), dtype=tl.float32)
    inner_top = top
    for split in range(num_splits):
        part = part_ptr + split * 7 * num_rows + rows
        top = tl.maximum(top, tl.load(part, mask=inside, other=0.0))
        inner_top = tl.maximum(inner_top, tl.load(part + 4 * num_rows, mask=inside, other=0.0))
    zeros = tl.zeros((BLOCK,), dtype=tl.float32)
    denominator, similarity, count, inner, attracted = zeros, zeros, zeros, zeros, zeros
    for split in range(num_splits):
        part = part_ptr + split * 7 * num_rows + rows
        shrink = tl.exp2(tl.load(part, mask=inside, other=0.0) - top)
        denominator += shrink * tl.load(part + num_rows, mask=inside, other=0.0)
        attracted += shrink * tl.load(part + 6 * num_rows, mask=inside, other=0.0)
        similarity += tl.load(part + 2 * num_rows, mask=inside, other=0.0)
        count += tl.load(part + 3 * num_rows, mask=inside, other=0.0)
        shrink = tl.exp2(tl.load(part + 4 * num_rows, mask=inside, other=0.0) - inner_top)
        inner += shrink * tl.load(part + 5 * num_rows, mask=inside, other=0.0)
    loss, log2_D, log2_S, count = anchor_loss(
        top, denominator, similarity, count, inner_top, inner, attracted, temperature, KIND
    )
    at = rows
    if SORTED:
        at = tl.load(order_ptr + rows, mask=inside, other=0)
    tl.store(out_ptr + at, loss, mask=inside)
    tl.store(out_ptr + num_rows + at, log2_D / LOG2_E, mask=inside)
    tl.store(out_ptr + 2 * num_rows + at, count, mask=inside)
    tl.store(out_ptr + 3 * num_rows + at, log2_S / LOG2_E, mask=inside)


@triton.jit
def margins_kernel(
    x_ptr, y_ptr, row_label_ptr, column_label_ptr, own_ptr, band_ptr, order_ptr, stats_ptr,
    num_rows, num_cols, self_start, to_log2, k1,
    D: tl.constexpr, BD: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    RESIDENT: tl.constexpr, SORTED: tl.constexpr, HAS_SELF: tl.constexpr, PRECISION: tl.constexpr,
    CLASSES: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """The second pass of `sincere`, over the bands only: with log N known, its loss and log D replace `dcl`'s."""
    block = tl.program_id(0)
    rows = block * BM + tl.arange(0, BM)
    inside = rows < num_rows
    row_labels, own, band_low, band_high = load_block(
        row_label_ptr, own_ptr, band_ptr, block, rows, num_rows, num_cols, self_start, HAS_SELF, SORTED, CLASSES, BC
    )
    at = rows
    if SORTED:
        at = tl.load(order_ptr + rows, mask=inside, other=0)
    count = tl.load(stats_ptr + 2 * num_rows + at, mask=inside, other=0.0)
    log2_N = tl.load(stats_ptr + 3 * num_rows + at, mask=inside, other=0.0) * LOG2_E
    x_MD = load_rows(x_ptr, rows, num_rows, 0, D, BD)
    loss, share = tl.zeros((BM,), dtype=tl.float32), tl.zeros((BM,), dtype=tl.float32)
    for start in range(band_low // BN * BN, band_high, BN):
        cols = start + tl.arange(0, BN)
        s_MN, _ = similarities(x_ptr, y_ptr, x_MD, rows, cols, num_rows, num_cols, D, BD, RESIDENT, PRECISION)
        w_MN = overlaps(
            row_label_ptr, column_label_ptr, row_labels, rows, block * BM + self_start, cols, start, num_rows, num_cols,
            CLASSES, BC, HAS_SELF, PRECISION,
        )  # fmt: skip
        loss, share = add_margins(
            s_MN, w_MN, row_labels, own, cols, num_cols, column_label_ptr, log2_N, loss, share, to_log2, k1,
            HAS_SELF, CLASSES,
        )  # fmt: skip
    loss, log2_D = margin_loss(loss, share, count, log2_N, k1)
    tl.store(stats_ptr + at, loss, mask=inside)
    tl.store(stats_ptr + num_rows + at, log2_D / LOG2_E, mask=inside)


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
    upstream_ptr, divisor_ptr, stats_ptr, order_ptr, largest_ptr, scale_ptr, out_ptr, num_rows, upstream_stride,
    SORTED: tl.constexpr, SHIFTED: tl.constexpr, KIND: tl.constexpr, HALF_SCALE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Upstream gradients and statistics as the factors that `gradient_kernel` reads.

    With a HALF_SCALE the largest upstream gradient is scaled to it; the factor goes to `scale_ptr`.
    """
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = rows < num_rows
    at = rows
    if SORTED:
        at = tl.load(order_ptr + rows, mask=inside, other=0)
    divisor = tl.load(divisor_ptr)
    scale = divisor * 0.0 + 1.0
    if HALF_SCALE > 0:
        scale = HALF_SCALE * divisor / tl.maximum(tl.abs(tl.load(largest_ptr).to(tl.float32)), 1e-30)
    if tl.program_id(0) == 0:
        tl.store(scale_ptr, scale)
    weight = tl.load(upstream_ptr + at * upstream_stride, mask=inside, other=0.0).to(tl.float32) / divisor * scale
    log2_D = tl.load(stats_ptr + num_rows + at, mask=inside, other=0.0) * LOG2_E
    count = tl.load(stats_ptr + 2 * num_rows + at, mask=inside, other=0.0)
    log2_S = tl.load(stats_ptr + 3 * num_rows + at, mask=inside, other=0.0) * LOG2_E
    store_factors(out_ptr, rows, num_rows, weight, count, log2_D, log2_S, SHIFTED, KIND)


@triton.jit
def gradient_kernel(
    x_ptr, y_ptr, row_label_ptr, column_label_ptr, own_ptr, band_ptr, row_ptr, column_ptr, out_ptr,
    num_rows, num_cols, cols_per_split, self_start, to_log2, pull_factor, k2, first_row, stop_row,
    D: tl.constexpr, BD: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    RESIDENT: tl.constexpr, SORTED: tl.constexpr, HAS_SELF: tl.constexpr, SHIFTED: tl.constexpr,
    PULLS: tl.constexpr, KIND: tl.constexpr, PRECISION: tl.constexpr, CLASSES: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """RESIDENT: a block's gradient, summed over a split of the columns, to out (S, R, D).

    Otherwise a block's gradient does not fit in registers. Then the coefficients themselves, of the rows from
    first_row to stop_row, go to out (stop_row - first_row, C), and a matrix product follows.
    """
    block, split = tl.program_id(0) + first_row // BM, tl.program_id(1)
    rows = block * BM + tl.arange(0, BM)
    inside = rows < stop_row
    dims = tl.arange(0, BD)
    row_labels, own, band_low, band_high = load_block(
        row_label_ptr, own_ptr, band_ptr, block, rows, stop_row, num_cols, self_start, HAS_SELF, SORTED, CLASSES, BC
    )
    row_mass, row_shift, row_pull, row_inner, row_inner_shift = load_factors(row_ptr, rows, num_rows, inside)
    x_MD = load_rows(x_ptr, rows, stop_row, 0, D, BD)
    grad_MD = tl.zeros((BM, BD), dtype=tl.float32)
    first = split * cols_per_split
    last = tl.minimum(first + cols_per_split, num_cols)
    for start in range(first, last, BN):
        cols = start + tl.arange(0, BN)
        s_MN, y_ND = similarities(x_ptr, y_ptr, x_MD, rows, cols, num_rows, num_cols, D, BD, RESIDENT, PRECISION)
        w_MN = overlaps(
            row_label_ptr, column_label_ptr, row_labels, rows, block * BM + self_start, cols, start, num_rows, num_cols,
            CLASSES, BC, HAS_SELF, PRECISION,
        )  # fmt: skip
        banded = CLASSES > 0 or ((start < band_high) & (start + BN > band_low)) | (start + BN > num_cols)
        h_MN = coefficients(
            s_MN, w_MN, banded, row_labels, own, cols, num_cols, column_label_ptr,
            row_mass, row_shift, row_pull, row_inner, row_inner_shift, column_ptr,
            to_log2, pull_factor, k2, HAS_SELF, SHIFTED, PULLS, KIND, CLASSES,
        )  # fmt: skip
        if RESIDENT:
            grad_MD = tl.dot(h_MN.to(y_ND.dtype), y_ND, grad_MD, input_precision=PRECISION)
        else:
            at = (rows - first_row)[:, None].to(tl.int64) * num_cols + cols[None, :]
            tl.store(out_ptr + at, h_MN.to(out_ptr.dtype.element_ty), mask=inside[:, None] & (cols[None, :] < num_cols))
    if RESIDENT:
        at = (split * num_rows + rows)[:, None].to(tl.int64) * D + dims[None, :]
        tl.store(out_ptr + at, grad_MD, mask=inside[:, None] & (dims[None, :] < D))


@triton.jit
def product_kernel(
    h_ptr, y_ptr, out_ptr, num_rows, num_cols,
    D: tl.constexpr, BD: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """out (R, D) = h (R, C) y (C, D), whatever torch's global setting for products of float32 is."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    dims = tl.program_id(1) * BD + tl.arange(0, BD)
    out_MD = tl.zeros((BM, BD), dtype=tl.float32)
    for start in range(0, num_cols, BN):
        cols = start + tl.arange(0, BN)
        inside = (rows[:, None] < num_rows) & (cols[None, :] < num_cols)
        h_MN = tl.load(h_ptr + rows[:, None].to(tl.int64) * num_cols + cols[None, :], mask=inside, other=0.0)
        inside = (cols[:, None] < num_cols) & (dims[None, :] < D)
        y_ND = tl.load(y_ptr + cols[:, None] * D + dims[None, :], mask=inside, other=0.0)
        out_MD = tl.dot(h_MN, y_ND, out_MD, input_precision=PRECISION)
    inside = (rows[:, None] < num_rows) & (dims[None, :] < D)
    tl.store(out_ptr + rows[:, None].to(tl.int64) * D + dims[None, :], out_MD, mask=inside)


@triton.jit
def finish_gradient_kernel(
    part_ptr, x_ptr, norm_ptr, order_ptr, scale_ptr, out_ptr, num_rows, num_splits, temperature,
    D: tl.constexpr, BD: tl.constexpr, BM: tl.constexpr, SORTED: tl.constexpr, NORMALIZED: tl.constexpr,
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
    if NORMALIZED:
        x_RD = load_rows(x_ptr, rows.to(tl.int64), num_rows, 0, D, BD).to(tl.float32)
        grad_RD = through_norm(grad_RD, x_RD, tl.load(norm_ptr + target, mask=rows < num_rows, other=1.0))
    out = target[:, None].to(tl.int64) * D + dims[None, :]
    tl.store(out_ptr + out, grad_RD.to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def small_statistics_kernel(
    z_ptr, label_ptr, out_ptr, num, row_stride, column_stride, to_log2, temperature, k1, k2, scale,
    D: tl.constexpr, BD: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    PULLS: tl.constexpr, KIND: tl.constexpr, HALF: tl.constexpr, PRECISION: tl.constexpr,
    CLASSES: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """(7, N) for each anchor of a small batch: loss, number of positives, and the five factors of its gradient.

    Every program normalizes the embeddings that it loads, and columns are not split. Repeating that work costs less
    than launching another kernel.
    """
    first = tl.program_id(0) * BM
    rows = first + tl.arange(0, BM)
    row_labels = load_labels(label_ptr, rows, num, CLASSES, BC)
    x_MD, _row_norm = load_unit(z_ptr, rows, num, row_stride, column_stride, D, BD)
    if HALF:
        x_MD = x_MD.to(tl.float16)
    zeros = tl.zeros((BM,), dtype=tl.float32)
    top, denominator, similarity, count, inner_top, inner, attracted = zeros, zeros, zeros, zeros, zeros, zeros, zeros
    for start in range(0, num, BN):
        cols = start + tl.arange(0, BN)
        y_ND, _column_norm = load_unit(z_ptr, cols, num, row_stride, column_stride, D, BD)
        s_MN = tl.dot(x_MD, tl.trans(y_ND.to(x_MD.dtype)), input_precision=PRECISION)
        w_MN = overlaps(
            label_ptr, label_ptr, row_labels, rows, first, cols, start, num, num, CLASSES, BC, True, PRECISION
        )
        top, denominator, similarity, count, inner_top, inner, attracted = add_tile(
            s_MN, w_MN, True, row_labels, rows, cols, num, label_ptr,
            top, denominator, similarity, count, inner_top, inner, attracted,
            to_log2, k1, k2, True, False, PULLS, KIND, CLASSES,
        )  # fmt: skip
    loss, log2_D, log2_S, count = anchor_loss(
        top, denominator, similarity, count, inner_top, inner, attracted, temperature, KIND
    )
    if KIND == "sincere":
        losses, share = zeros, zeros
        for start in range(0, num, BN):
            cols = start + tl.arange(0, BN)
            y_ND, _column_norm = load_unit(z_ptr, cols, num, row_stride, column_stride, D, BD)
            s_MN = tl.dot(x_MD, tl.trans(y_ND.to(x_MD.dtype)), input_precision=PRECISION)
            w_MN = overlaps(
                label_ptr, label_ptr, row_labels, rows, first, cols, start, num, num, CLASSES, BC, True, PRECISION
            )
            losses, share = add_margins(
                s_MN, w_MN, row_labels, rows, cols, num, label_ptr, log2_S, losses, share, to_log2, k1, True, CLASSES
            )
        loss, log2_D = margin_loss(losses, share, count, log2_S, k1)
    tl.store(out_ptr + rows, loss, mask=rows < num)
    tl.store(out_ptr + num + rows, count, mask=rows < num)
    store_factors(out_ptr + 2 * num, rows, num, scale, count, log2_D, log2_S, False, KIND)


@triton.jit
def small_gradient_kernel(
    z_ptr, label_ptr, anchor_ptr, loss_ptr, grad_ptr, num, row_stride, column_stride,
    to_log2, temperature, pull_factor, k2, scale, MEAN: tl.constexpr,
    D: tl.constexpr, BD: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    PULLS: tl.constexpr, KIND: tl.constexpr, HALF: tl.constexpr, PRECISION: tl.constexpr,
    CLASSES: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """The sum or mean of a small batch's losses, by the first program, and its gradient with respect to z."""
    first = tl.program_id(0) * BM
    rows = first + tl.arange(0, BM)
    inside = rows < num
    row_labels = load_labels(label_ptr, rows, num, CLASSES, BC)
    factor_ptr = anchor_ptr + 2 * num
    row_mass, row_shift, row_pull, row_inner, row_inner_shift = load_factors(factor_ptr, rows, num, inside)
    x_MD, norm_M = load_unit(z_ptr, rows, num, row_stride, column_stride, D, BD)
    x_dot_MD = x_MD
    if HALF:
        x_dot_MD = x_MD.to(tl.float16)
    grad_MD = tl.zeros((BM, BD), dtype=tl.float32)
    losses = tl.zeros((BN,), dtype=tl.float32)
    usable = tl.zeros((BN,), dtype=tl.float32)
    for start in range(0, num, BN):
        cols = start + tl.arange(0, BN)
        y_ND, _column_norm = load_unit(z_ptr, cols, num, row_stride, column_stride, D, BD)
        y_ND = y_ND.to(x_dot_MD.dtype)
        s_MN = tl.dot(x_dot_MD, tl.trans(y_ND), input_precision=PRECISION)
        w_MN = overlaps(
            label_ptr, label_ptr, row_labels, rows, first, cols, start, num, num, CLASSES, BC, True, PRECISION
        )
        h_MN = coefficients(
            s_MN, w_MN, True, row_labels, rows, cols, num, label_ptr,
            row_mass, row_shift, row_pull, row_inner, row_inner_shift, factor_ptr,
            to_log2, pull_factor, k2, True, False, PULLS, KIND, CLASSES,
        )  # fmt: skip
        grad_MD = tl.dot(h_MN.to(y_ND.dtype), y_ND, grad_MD, input_precision=PRECISION)
        losses += tl.load(anchor_ptr + cols, mask=cols < num, other=0.0)
        usable += tl.where(tl.load(anchor_ptr + num + cols, mask=cols < num, other=0.0) > 0, 1.0, 0.0)
    divisor = 1.0
    if MEAN:
        divisor = tl.maximum(tl.sum(usable, axis=0), 1.0)
    if tl.program_id(0) == 0:
        tl.store(loss_ptr, tl.sum(losses, axis=0) / divisor)
    grad_MD = through_norm(grad_MD / (temperature * scale * divisor), x_MD, norm_M)
    dims = tl.arange(0, BD)
    tl.store(grad_ptr + rows[:, None] * D + dims[None, :], grad_MD, mask=inside[:, None] & (dims[None, :] < D))
