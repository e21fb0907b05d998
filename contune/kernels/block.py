"""A few anchors against all candidates: their losses, and what these give back to the similarities.

What is outside the band of columns that holds the positives is a negative, so the two are treated apart. The
derivation is in README.md beside this file.

Shapes: C candidates, B anchors of a block, K columns of its band.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from contune.kernels.problem import Anchors, Knobs, Statistics


class Block(NamedTuple):
    """The pairs of a few anchors with all candidates."""

    rows: slice
    logits_BC: Tensor
    """Similarities over τ, -inf for an anchor with itself. Whoever takes the block may overwrite them."""
    band: slice
    """The columns that hold every positive of the block."""
    weights_BK: Tensor
    """Of the positives in the band for the rows as anchors; bool with labels, else numbers."""
    column_weights_BK: Tensor
    """The same for the columns as anchors."""


def block_statistics(block: Block, knobs: Knobs, plain: bool) -> Statistics:
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


class Side(NamedTuple):
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
    def of(cls, anchors: Anchors, order: Tensor, plain: bool) -> "Side":
        weight = (anchors.upstream / anchors.divisor).to(anchors.log_D.dtype)[order]
        log_D, total, log_S = (part[order] for part in anchors[2:])
        # An infinite logarithm makes every exponential of an unusable anchor an exact 0.
        usable = total > 0
        weight, total = torch.where(usable, weight, 0.0), torch.where(usable, total, 1.0)
        log_D, log_S = torch.where(usable, log_D, math.inf), torch.where(usable, log_S, math.inf)
        mass = weight * (-log_D).exp() if plain else weight
        return cls(mass, None if plain else log_D, weight / total, weight, log_S)

    def as_column(self) -> "Side":
        return Side(*(None if part is None else part[:, None] for part in self))  # type: ignore[arg-type]  # shift may be None

    def rows(self, rows: slice) -> "Side":
        return Side(*(None if part is None else part[rows] for part in self))  # type: ignore[arg-type]  # shift may be None


def block_coefficients(block: Block, knobs: Knobs, plain: bool, rows: Side | None, columns: Side | None) -> Tensor:
    """τ times the gradient of all losses with respect to the similarities of a block."""
    row_side = None if rows is None else rows.rows(block.rows)
    if row_side is None:
        assert columns is not None
        return _one_side(block.logits_BC, block.band, block.column_weights_BK, knobs, columns)
    if columns is None:
        return _one_side(block.logits_BC, block.band, block.weights_BK, knobs, row_side)
    if plain and block.weights_BK is block.column_weights_BK and knobs.variant == "out":
        both = Side(row_side.mass + columns.mass, None, row_side.pull + columns.pull[block.band], *row_side[3:])
        return _one_side(block.logits_BC, block.band, block.weights_BK, knobs, both)
    by_rows_BC = _one_side(block.logits_BC.clone(), block.band, block.weights_BK, knobs, row_side)
    return by_rows_BC.add_(_one_side(block.logits_BC, block.band, block.column_weights_BK, knobs, columns))


def _one_side(logits_BC: Tensor, band: slice, weights_BK: Tensor, knobs: Knobs, side: Side) -> Tensor:
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
