"""The pair losses block by block: plain torch, any device, never more than a few rows of the N×N matrix.

Both passes walk over blocks of anchors. With labels, anchors and candidates are sorted, so that the positives of
a block lie in one narrow band of columns and everything outside the band is a negative. The derivation is in
README.md beside this file.

Shapes: R anchors, C candidates, B anchors of a block, K columns of its band, D embedding size.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from contune.kernels.problem import Anchors, Knobs, Pairs, Statistics, exponent_is_safe

BLOCK_ELEMENTS = 2**19
"""Entries of the similarity matrix that are alive at once on a CPU: 2 MiB in float32, which stays in cache."""
DEVICE_BLOCK_ELEMENTS = 2**25
"""The same elsewhere: enough to fill a GPU."""


def prepared(z_ND: Tensor, normalize: bool, knobs: Knobs) -> tuple[Tensor, Tensor | None]:
    """Embeddings in float32 or better, of length 1 when asked, and the lengths they had."""
    x_ND = z_ND if z_ND.dtype == torch.float64 else z_ND.float()
    if not normalize:
        return x_ND, None
    norm_N = torch.linalg.vector_norm(x_ND, dim=1).clamp(min=1e-12)
    return x_ND / norm_N[:, None], norm_N


def reduced(stats: Statistics, reduction: str) -> tuple[Tensor, Tensor]:
    """Sum or mean of the losses, and the number of usable anchors, at least 1."""
    num_usable = (stats.total_R > 0).sum().clamp(min=1).to(stats.loss_R.dtype)
    total = stats.loss_R.sum()
    return (total / num_usable if reduction == "mean" else total), num_usable


def through_norm(grad_x_ND: Tensor, x_ND: Tensor, norm_N: Tensor | None) -> Tensor:
    """Back through x = z / |z|: what points along x is lost."""
    if norm_N is None:
        return grad_x_ND
    along_N1 = (grad_x_ND * x_ND).sum(dim=1, keepdim=True)
    return (grad_x_ND - x_ND * along_N1) / norm_N[:, None]


class _Block(NamedTuple):
    """Some anchors against all candidates."""

    rows: slice
    logits_BC: Tensor
    """Similarities over τ, -inf for an anchor with itself. Whoever takes the block may overwrite them."""
    band: slice
    """The columns that hold every positive of the block."""
    weights_BK: Tensor
    """Of the positives in the band for the rows as anchors; bool with labels, else numbers."""
    column_weights_BK: Tensor
    """The same for the columns as anchors."""


class Plan:
    """Anchors and candidates in an order that keeps positives together, block by block."""

    def __init__(self, x_RD: Tensor, y_CD: Tensor, pairs: Pairs, knobs: Knobs, bound: float | None) -> None:
        """bound: the largest |similarity|, if known."""
        self.knobs = knobs
        self.plain = exponent_is_safe(len(y_CD), knobs, bound, x_RD.dtype)
        self.weights_RC = pairs.weights_RC
        if pairs.labels_R is None or pairs.labels_C is None:
            self.row_order = torch.arange(len(x_RD), device=x_RD.device)
            self.column_order = torch.arange(len(y_CD), device=x_RD.device)
        else:
            self.row_order = pairs.labels_R.argsort(stable=True)
            self.column_order = pairs.labels_C.argsort(stable=True)
            self.labels_R = pairs.labels_R[self.row_order]
            self.labels_C = pairs.labels_C[self.column_order]
        self.x_RD, self.y_CD = x_RD[self.row_order], y_CD[self.column_order]
        own_R = None if pairs.self_start is None else self.row_order + pairs.self_start
        self.self_R = None if own_R is None else self.column_order.argsort()[own_R]

    def statistics(self) -> Statistics:
        # Results go to one tensor made beforehand: kept apart, they would pin the heap between large temporaries.
        found_4R = self.x_RD.new_empty(4, len(self.x_RD))
        for block in self._blocks():
            found_4R[:, block.rows] = torch.stack(_block_statistics(block, self.knobs, self.plain))
        return Statistics(*(self._unsorted(column_R) for column_R in found_4R))

    def gradient(
        self, rows: Anchors | None, columns: Anchors | None, norm_R: Tensor | None, dtype: torch.dtype
    ) -> Tensor:
        """From the losses of the rows as anchors and of the columns as anchors."""
        row_side = None if rows is None else _Side.of(rows, self.row_order, self.plain).as_column()
        column_side = None if columns is None else _Side.of(columns, self.column_order, self.plain)
        grad_RD = torch.empty_like(self.x_RD)
        for block in self._blocks():
            h_BC = _block_coefficients(block, self.knobs, self.plain, row_side, column_side)
            torch.mm(h_BC, self.y_CD, out=grad_RD[block.rows])
        grad_RD /= self.knobs.temperature
        norm_R = None if norm_R is None else norm_R[self.row_order]
        return self._unsorted(through_norm(grad_RD, self.x_RD, norm_R)).to(dtype)

    def _unsorted(self, values: Tensor) -> Tensor:
        result = torch.empty_like(values)
        result[self.row_order] = values
        return result

    def _blocks(self) -> Iterator[_Block]:
        num_rows, num_columns = len(self.x_RD), len(self.y_CD)
        elements = BLOCK_ELEMENTS if self.x_RD.device.type == "cpu" else DEVICE_BLOCK_ELEMENTS
        size = max(16, elements // num_columns)
        starts = list(range(0, num_rows, size))
        bands = self._bands(starts, size)
        for start, band in zip(starts, bands, strict=True):
            rows = slice(start, min(start + size, num_rows))
            logits_BC = (self.x_RD[rows] / self.knobs.temperature) @ self.y_CD.T
            self_B1 = None if self.self_R is None else self.self_R[rows, None]
            if self_B1 is not None:
                logits_BC.scatter_(1, self_B1, -math.inf)
            yield _Block(rows, logits_BC, band, *self._weights(rows, band, self_B1))

    def _bands(self, starts: list[int], size: int) -> list[slice]:
        """One look at the labels for all blocks: on a GPU each look would make the host wait."""
        if self.weights_RC is not None:
            return [slice(0, len(self.y_CD))] * len(starts)
        first = torch.tensor(starts, device=self.labels_R.device)
        last = (first + size - 1).clamp(max=len(self.labels_R) - 1)
        low = torch.searchsorted(self.labels_C, self.labels_R[first])
        high = torch.searchsorted(self.labels_C, self.labels_R[last], right=True)
        return [slice(*ends) for ends in torch.stack([low, high], dim=1).tolist()]

    def _weights(self, rows: slice, band: slice, self_B1: Tensor | None) -> tuple[Tensor, Tensor]:
        if self.weights_RC is None:
            positive_BK = self.labels_R[rows, None] == self.labels_C[None, band]
            if self_B1 is not None:
                positive_BK &= torch.arange(band.start, band.stop, device=self_B1.device) != self_B1
            return positive_BK, positive_BK
        by_row_BK = self.weights_RC[rows]
        if self_B1 is None:
            return by_row_BK, by_row_BK
        # In the square case a column is an anchor too, and its positives stand in the matrix's other half.
        zero = torch.zeros((), dtype=by_row_BK.dtype, device=by_row_BK.device)
        return (
            by_row_BK.scatter(1, self_B1, zero.expand(self_B1.shape)),
            self.weights_RC[:, rows].T.scatter(1, self_B1, zero.expand(self_B1.shape)),
        )


def _block_statistics(block: _Block, knobs: Knobs, plain: bool) -> Statistics:
    logits_BC, weights_BK = block.logits_BC, block.weights_BK
    positive_BK = weights_BK if weights_BK.dtype == torch.bool else weights_BK > 0
    total_B = weights_BK.sum(dim=1, dtype=logits_BC.dtype)
    band_BK = logits_BC[:, block.band].masked_fill(~positive_BK, 0.0)
    attraction_B = (band_BK * weights_BK).sum(dim=1) / total_B.clamp(min=torch.finfo(logits_BC.dtype).tiny)

    k2 = knobs.k2
    if _k2_in_exponent(knobs, plain):
        _weigh_negatives(logits_BC, block.band, positive_BK, k2)
        k2 = 1.0
    # Where no exponential can overflow, nothing is subtracted before it is taken.
    top_B = logits_BC.new_zeros(len(logits_BC)) if plain else logits_BC.amax(dim=1).clamp(min=-1e30)
    exp_BC = logits_BC.exp_() if plain else logits_BC.sub_(top_B[:, None]).exp_()
    exp_band_BK = exp_BC[:, block.band]
    positives_B = (exp_band_BK * positive_BK).sum(dim=1)
    exp_band_BK.masked_fill_(positive_BK, 0.0)
    log_D_B = top_B + (positives_B + k2 * exp_BC.sum(dim=1)).log()
    if knobs.k1 > 0:
        pull_BK = (band_BK * -knobs.temperature).masked_fill_(~positive_BK, -math.inf)
        log_D_B = torch.logaddexp(log_D_B, math.log(knobs.k1) + pull_BK.logsumexp(dim=1))
    log_S_B = torch.zeros_like(log_D_B)
    if knobs.variant == "in":
        log_S_B = (band_BK + weights_BK.log()).masked_fill_(~positive_BK, -math.inf).logsumexp(dim=1)
        attraction_B = log_S_B - total_B.log()
    loss_B = torch.where(total_B > 0, log_D_B - attraction_B, 0.0)
    return Statistics(loss_B, log_D_B, total_B, log_S_B)


def _k2_in_exponent(knobs: Knobs, plain: bool) -> bool:
    """Where numbers are far apart, k2 itself may leave float32; and 0 times an exponential that does is NaN."""
    return knobs.k2 == 0 or (knobs.k2 != 1 and not plain)


def _weigh_negatives(logits_BC: Tensor, band: slice, positive_BK: Tensor, k2: float) -> None:
    """Their exponentials times k2."""
    log_k2 = math.log(k2) if k2 > 0 else -math.inf
    logits_BC[:, : band.start] += log_k2
    logits_BC[:, band.stop :] += log_k2
    logits_BC[:, band] = torch.where(positive_BK, logits_BC[:, band], logits_BC[:, band] + log_k2)


class _Side(NamedTuple):
    """The anchors of one side of a block, as factors of their exponentials."""

    mass: Tensor
    """Factor of exp(logit - shift)."""
    shift: Tensor | None
    """Subtracted before an exponential is taken; None where nothing needs to be."""
    pull: Tensor
    """What a positive of weight 1 is pulled with."""
    inner: Tensor
    """Factor of exp(logit - inner_shift) for positives, in the variant `in`."""
    inner_shift: Tensor

    @classmethod
    def of(cls, anchors: Anchors, order: Tensor, plain: bool) -> "_Side":
        weight = (anchors.upstream / anchors.divisor).to(anchors.log_D.dtype)[order]
        log_D, total, log_S = (part[order] for part in anchors[2:])
        # An infinite logarithm makes every exponential of an unusable anchor an exact 0.
        usable = total > 0
        weight, total = torch.where(usable, weight, 0.0), torch.where(usable, total, 1.0)
        log_D, log_S = torch.where(usable, log_D, math.inf), torch.where(usable, log_S, math.inf)
        mass = weight * (-log_D).exp() if plain else weight
        return cls(mass, None if plain else log_D, weight / total, weight, log_S)

    def as_column(self) -> "_Side":
        return _Side(*(None if part is None else part[:, None] for part in self))  # type: ignore[arg-type]  # shift may be None

    def rows(self, rows: slice) -> "_Side":
        return _Side(*(None if part is None else part[rows] for part in self))  # type: ignore[arg-type]  # shift may be None


def _block_coefficients(block: _Block, knobs: Knobs, plain: bool, rows: _Side | None, columns: _Side | None) -> Tensor:
    """τ times the gradient of all losses with respect to the similarities of a block."""
    row_side = None if rows is None else rows.rows(block.rows)
    if row_side is None:
        assert columns is not None
        return _one_side(block.logits_BC, block.band, block.column_weights_BK, knobs, columns)
    if columns is None:
        return _one_side(block.logits_BC, block.band, block.weights_BK, knobs, row_side)
    if plain and block.weights_BK is block.column_weights_BK and knobs.variant == "out":
        both = _Side(row_side.mass + columns.mass, None, row_side.pull + columns.pull[block.band], *row_side[3:])
        return _one_side(block.logits_BC, block.band, block.weights_BK, knobs, both)
    by_rows_BC = _one_side(block.logits_BC.clone(), block.band, block.weights_BK, knobs, row_side)
    return by_rows_BC.add_(_one_side(block.logits_BC, block.band, block.column_weights_BK, knobs, columns))


def _one_side(logits_BC: Tensor, band: slice, weights_BK: Tensor, knobs: Knobs, side: _Side) -> Tensor:
    """The part of anchors that all stand on one side, or of both sides where they share their factors."""
    positive_BK = weights_BK if weights_BK.dtype == torch.bool else weights_BK > 0
    band_BK = logits_BC[:, band].clone()

    def in_band(part: Tensor) -> Tensor:
        """Its columns in the band; a part with one column, or with the band's only, is there already."""
        return part[..., band] if part.shape[-1] == logits_BC.shape[1] else part

    k2 = knobs.k2
    if _k2_in_exponent(knobs, plain=side.shift is None):
        _weigh_negatives(logits_BC, band, positive_BK, k2)
        k2 = 1.0
    result_BC = logits_BC.exp_() if side.shift is None else logits_BC.sub_(side.shift).exp_()
    result_BC.mul_(side.mass)
    attracted_BK = result_BC[:, band].clone()
    if knobs.k1 > 0:
        # The factor goes into the exponent: a huge one would meet an exponential that is 0.
        exponent_BK = (band_BK * -knobs.temperature).add_(math.log(knobs.k1))
        if side.shift is not None:
            exponent_BK -= in_band(side.shift)
        attracted_BK -= exponent_BK.exp_().mul_(in_band(side.mass)).mul_(knobs.temperature)
    if knobs.variant == "in":
        attracted_BK -= weights_BK * (band_BK - in_band(side.inner_shift)).exp_().mul_(in_band(side.inner))
    else:
        attracted_BK -= weights_BK * in_band(side.pull)
    if k2 != 1:
        result_BC.mul_(k2)
    result_BC[:, band] = torch.where(positive_BK, attracted_BK, result_BC[:, band])
    return result_BC
