"""The pair losses block by block: plain torch, any device, never more than a few rows of the N×N matrix.

Both passes walk over blocks of anchors. With labels, anchors and candidates are sorted. The positives of a block then
lie in one narrow band of columns, and everything outside the band is a negative. README.md derives the closed form.

Shapes: R anchors, C candidates, B anchors of a block, K columns of its band, D embedding size.
"""

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.nn.functional as F
from torch import Tensor

from contune.kernels import APART, LossSettings, Pairs, normalized
from contune.kernels.dense import exponent_is_safe

BLOCK_ELEMENTS = 2**19
"""Entries of the similarity matrix in memory at a time on a CPU: 2 MiB in float32, which stays in cache."""
DEVICE_BLOCK_ELEMENTS = 2**25
"""The same on other devices: enough to fill a GPU."""


def prepare(z_ND: Tensor, settings: LossSettings) -> tuple[Tensor, Tensor | None]:
    return normalized(z_ND, settings.normalize)


def arrange(pairs: Pairs, settings: LossSettings) -> Pairs:
    if pairs.labels_R is not None and pairs.labels_R.dim() == 1:
        pairs = pairs if pairs.order_R is not None else pairs.sorted_by_label()
        return pairs.with_bands(_rows_per_block(pairs))
    if pairs.self_start is None:
        return pairs
    own_R = torch.arange(len(pairs.x_RD), device=pairs.x_RD.device) + pairs.self_start
    return pairs._replace(own_R=own_R)


def statistics(pairs: Pairs, settings: LossSettings) -> Tensor:
    plain = exponent_is_safe(len(pairs.y_CD), settings, pairs.x_RD.dtype)
    # Results go to one tensor made beforehand: kept apart, they would pin the heap between large temporaries.
    stats_4R = pairs.x_RD.new_empty(4, len(pairs.x_RD))

    def fill(rows: slice, logits_BC: Tensor, band: slice, weights_BK: Tensor, _: Tensor) -> None:
        stats_4R[:, rows] = torch.stack(_block_statistics(logits_BC, band, weights_BK, settings, plain))

    _for_each_block(fill, pairs, settings.temperature)
    return _in_callers_order(stats_4R, pairs.order_R, dim=1)


def reduce(stats_4R: Tensor, reduction: str) -> tuple[Tensor, Tensor]:
    """Sum or mean of the losses, and the number of usable anchors, at least 1."""
    num_usable = (stats_4R[2] > 0).sum().clamp(min=1).to(stats_4R.dtype)
    total = stats_4R[0].sum()
    return (total / num_usable if reduction == "mean" else total), num_usable


def gradient(
    pairs: Pairs,
    settings: LossSettings,
    rows: tuple[Tensor, Tensor] | None,
    columns: tuple[Tensor, Tensor] | None,
    divisor: Tensor,
    norm_R1: Tensor | None,
    dtype: torch.dtype,
) -> Tensor:
    """From the losses of the rows as anchors and of the columns as anchors: (upstream gradient, statistics) each."""
    plain = exponent_is_safe(len(pairs.y_CD), settings, pairs.x_RD.dtype)
    row_5R1 = None if rows is None else _factors(*rows, divisor, pairs.order_R, plain)[..., None]
    column_51C = None if columns is None else _factors(*columns, divisor, pairs.order_C, plain)[:, None]
    grad_RD = pairs.x_RD.new_empty(pairs.x_RD.shape)  # contiguous, as the compiled operator says

    def fill(rows: slice, logits_BC: Tensor, band: slice, by_row_BK: Tensor, by_column_BK: Tensor) -> None:
        sides = [] if row_5R1 is None else [(by_row_BK, [row_5R1[:, rows]])]
        sides += [] if column_51C is None else [(by_column_BK, [column_51C])]
        if len(sides) == 2 and plain and by_row_BK is by_column_BK:  # one exponential serves both
            sides = [(by_row_BK, [*sides[0][1], *sides[1][1]])]
        h_BC = _coefficients(logits_BC.clone() if len(sides) == 2 else logits_BC, band, *sides[0], settings, plain)
        if len(sides) == 2:
            h_BC += _coefficients(logits_BC, band, *sides[1], settings, plain)
        torch.mm(h_BC, pairs.y_CD, out=grad_RD[rows])

    _for_each_block(fill, pairs, settings.temperature)
    grad_RD /= settings.temperature
    if norm_R1 is not None:  # back through x = z / |z|: the part along x is lost
        along_R1 = (grad_RD * pairs.x_RD).sum(dim=1, keepdim=True)
        norm_R1 = norm_R1 if pairs.order_R is None else norm_R1[pairs.order_R]
        grad_RD = (grad_RD - pairs.x_RD * along_R1) / norm_R1
    return _in_callers_order(grad_RD, pairs.order_R, dim=0).to(dtype)


def _for_each_block(work: Callable[..., None], pairs: Pairs, temperature: float) -> None:
    """Call `work` with the rows of a few anchors and with their logits, band, weights and weights by column.

    Logits are similarities over τ, -inf for an anchor with itself; `work` may overwrite them. The band is the columns
    that contain every positive of the block. Its weights are bool with labels, else numbers. By column they are those
    for the columns as anchors.

    On a CPU every thread computes whole blocks. If all threads shared every operation, they would wait for each other
    hundreds of times. While other processes keep the cores busy, that takes several times as long.
    """
    num_rows, size = len(pairs.x_RD), _rows_per_block(pairs)
    bands = None if pairs.bands_K2 is None else pairs.bands_K2.tolist()  # one wait for the device, not one per block

    @torch.no_grad()
    def run(start: int) -> None:
        rows = slice(start, min(start + size, num_rows))
        band = slice(0, len(pairs.y_CD)) if bands is None else slice(*bands[start // size])
        logits_BC = (pairs.x_RD[rows] / temperature) @ pairs.y_CD.T
        own_B1 = None if pairs.own_R is None else pairs.own_R[rows, None]
        if own_B1 is not None:
            logits_BC.scatter_(1, own_B1, -math.inf)
        work(rows, logits_BC, band, *_weights(pairs, rows, band, own_B1))

    starts = range(0, num_rows, size)
    num_threads = torch.get_num_threads()
    if pairs.x_RD.device.type != "cpu" or min(num_threads, len(starts)) < 2:
        for start in starts:
            run(start)
        return
    with ThreadPoolExecutor(num_threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        try:
            list(pool.map(run, starts))
        finally:
            torch.set_num_threads(num_threads)


def _rows_per_block(pairs: Pairs) -> int:
    elements = BLOCK_ELEMENTS if pairs.x_RD.device.type == "cpu" else DEVICE_BLOCK_ELEMENTS
    return max(16, elements // len(pairs.y_CD))


def _weights(pairs: Pairs, rows: slice, band: slice, own_B1: Tensor | None) -> tuple[Tensor, Tensor]:
    if pairs.labels_R is not None and pairs.labels_C is not None:
        if pairs.labels_R.dim() == 1:
            positive_BK = pairs.labels_R[rows, None] == pairs.labels_C[None, band]
            if own_B1 is not None:
                positive_BK &= torch.arange(band.start, band.stop, device=own_B1.device) != own_B1
            return positive_BK, positive_BK
        overlap_BC = pairs.labels_R[rows] @ pairs.labels_C.T
        overlap_BC = overlap_BC if own_B1 is None else overlap_BC.scatter_(1, own_B1, 0)
        return overlap_BC, overlap_BC
    assert pairs.weights_RC is not None
    by_row_BC = pairs.weights_RC[rows]
    if own_B1 is None:
        return by_row_BC, by_row_BC
    # In the square case a column is an anchor too. Its positives are in the matrix's other half.
    return by_row_BC.scatter(1, own_B1, 0), pairs.weights_RC[:, rows].T.scatter(1, own_B1, 0)


def _block_statistics(
    logits_BC: Tensor, band: slice, weights_BK: Tensor, settings: LossSettings, plain: bool
) -> tuple[Tensor, ...]:
    positive_BK = weights_BK > 0
    total_B = weights_BK.sum(dim=1, dtype=logits_BC.dtype)
    band_BK = logits_BC[:, band].masked_fill(~positive_BK, 0.0)
    attraction_B = (band_BK * weights_BK).sum(dim=1) / total_B.clamp(min=torch.finfo(logits_BC.dtype).tiny)

    _add_log_k2(logits_BC, band, positive_BK, settings.k2)
    if settings.kind in APART:
        logits_BC[:, band].masked_fill_(positive_BK, -math.inf)
    top_B = logits_BC.new_zeros(len(logits_BC)) if plain else logits_BC.amax(dim=1).clamp(min=-1e30)
    exp_BC = logits_BC.exp_() if plain else logits_BC.sub_(top_B[:, None]).exp_()
    exp_band_BK = exp_BC[:, band]
    positives_B = (exp_band_BK * positive_BK).sum(dim=1)
    exp_band_BK.masked_fill_(positive_BK, 0.0)
    tuned_B = positives_B * (1 + settings.k1) if settings.kind == "auto" else positives_B
    log_D_B = top_B + (tuned_B + exp_BC.sum(dim=1)).log()
    log_S_B = torch.zeros_like(log_D_B)
    if settings.k1 > 0:
        pull_BK = (band_BK * -settings.temperature).masked_fill_(~positive_BK, -math.inf)
        if settings.kind == "auto":
            log_S_B = log_D_B + pull_BK.logsumexp(dim=1) - (top_B + positives_B.log())
        else:
            log_D_B = torch.logaddexp(log_D_B, math.log(settings.k1) + pull_BK.logsumexp(dim=1))
    if settings.kind in APART:  # without a negative, D is 0
        total_B = torch.where(log_D_B == -math.inf, 0.0, total_B)
    loss_B = log_D_B - attraction_B
    if settings.kind == "sincere":
        log_S_B = log_D_B
        margin_BK = log_S_B[:, None] + settings.epsilon - band_BK
        share_BK = weights_BK / total_B[:, None]
        loss_B = (share_BK * -F.logsigmoid(-margin_BK)).sum(dim=1) - settings.epsilon
        log_D_B = log_S_B - (share_BK * margin_BK.sigmoid()).sum(dim=1).log()
    elif settings.kind == "in":
        log_S_B = (band_BK + weights_BK.log()).masked_fill_(~positive_BK, -math.inf).logsumexp(dim=1)
        loss_B = log_D_B - (log_S_B - total_B.log())
    return torch.where(total_B > 0, loss_B, 0.0), log_D_B, total_B, log_S_B


def _add_log_k2(logits_BC: Tensor, band: slice, positive_BK: Tensor, k2: float) -> None:
    """To the negatives' logits: k2 itself may not fit float32, and a k2 of 0 times an infinity would be NaN."""
    if k2 != 1:
        positives_BK = logits_BC[:, band].clone()
        logits_BC += math.log(k2) if k2 > 0 else -math.inf
        logits_BC[:, band] = torch.where(positive_BK, positives_BK, logits_BC[:, band])


def _factors(upstream: Tensor, stats_4N: Tensor, divisor: Tensor, order_N: Tensor | None, plain: bool) -> Tensor:
    """Anchors as factors of their exponentials, (5, N): mass, shift, pull, inner, inner shift.

    mass · exp(logit - shift), and for `plain` mass · exp(logit); a positive of weight 1 is pulled by `pull`. Another
    exponential of positives is inner · exp(logit - inner shift) in `in`, inner · exp(-s - inner shift) in `auto`. The
    inner shift of `sincere` is log N.
    """
    weight_N = (upstream / divisor).to(stats_4N.dtype)
    if order_N is not None:
        weight_N, stats_4N = weight_N[order_N], stats_4N[:, order_N]
    _, log_D_N, total_N, log_S_N = stats_4N
    # An infinite logarithm makes every exponential of an unusable anchor an exact 0.
    usable_N = total_N > 0
    weight_N, total_N = torch.where(usable_N, weight_N, 0.0), torch.where(usable_N, total_N, 1.0)
    log_D_N, log_S_N = torch.where(usable_N, log_D_N, math.inf), torch.where(usable_N, log_S_N, math.inf)
    mass_N = weight_N * (-log_D_N).exp() if plain else weight_N
    return torch.stack([mass_N, log_D_N, weight_N / total_N, weight_N, log_S_N])


def _coefficients(
    logits_BC: Tensor, band: slice, weights_BK: Tensor, sides: list[Tensor], settings: LossSettings, plain: bool
) -> Tensor:
    """τ times the gradient of the losses with respect to the similarities of a block.

    Of the anchors of one side, or of both if they agree on who is positive and nothing is shifted.
    """
    positive_BK, band_BK = weights_BK > 0, logits_BC[:, band].clone()
    in_band = [side if side.shape[-1] == 1 else side[..., band] for side in sides]
    _add_log_k2(logits_BC, band, positive_BK, settings.k2)
    result_BC = logits_BC.exp_() if plain else logits_BC.sub_(sides[0][1]).exp_()
    result_BC.mul_(sum(mass for mass, *_ in sides))
    attracted_BK = torch.zeros_like(band_BK) if settings.kind in APART else result_BC[:, band].clone()
    if settings.k1 > 0 and settings.kind != "auto":
        # The factor goes into the exponent: a huge one would meet an exponential that is 0.
        exponent_BK = (band_BK * -settings.temperature).add_(math.log(settings.k1))
        if not plain:
            exponent_BK -= in_band[0][1]
        attracted_BK -= exponent_BK.exp_().mul_(sum(mass for mass, *_ in in_band)).mul_(settings.temperature)
    for _, _, pull, inner, inner_shift in in_band:
        if settings.kind == "auto":
            pulled_BK = (band_BK * -settings.temperature).sub_(inner_shift).exp_().mul_(inner)
            attracted_BK -= pulled_BK.mul_(settings.temperature * settings.k1)
        if settings.kind == "sincere":
            pull = (inner_shift + settings.epsilon - band_BK).sigmoid_().mul_(pull)
        elif settings.kind == "in":
            pull = (band_BK - inner_shift).exp_().mul_(inner)
        attracted_BK -= weights_BK * pull
    result_BC[:, band] = torch.where(positive_BK, attracted_BK, result_BC[:, band])
    return result_BC


def _in_callers_order(values: Tensor, order_R: Tensor | None, dim: int) -> Tensor:
    return values if order_R is None else torch.empty_like(values).index_copy_(dim, order_R, values)
