"""What every backend is asked, and what it answers.

A backend has three functions and a class, used by engine.py:

    prepared(z, normalize, knobs)   embeddings as it wants them, and the lengths they had
    Plan(x, y, pairs, knobs, bound) anchors x against candidates y
        .statistics()               the loss of each anchor, and what its gradient will need
        .gradient(rows, columns, norm, dtype)   with respect to what x was before it was normalised
    reduced(stats, reduction)       the losses as one number, and how many anchors count

Shapes: R anchors (rows), C candidates (columns). In the usual square case the anchors are each other's candidates.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor


class Knobs(NamedTuple):
    """The loss: equations 8 and 9 of the paper."""

    temperature: float
    k1: float
    k2: float
    variant: str = "out"
    precision: str = "fast"


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """Who is positive for whom, by labels or by a matrix of weights, and which pair is an anchor with itself."""

    labels_R: Tensor | None = None
    labels_C: Tensor | None = None
    weights_RC: Tensor | None = None
    self_start: int | None = None
    """Row i is column self_start + i, the anchor itself; None where anchors and candidates are different things."""

    def transposed(self) -> "Pairs":
        """Candidates as rows; only for pairs without an anchor's own column."""
        assert self.self_start is None
        weights_CR = None if self.weights_RC is None else self.weights_RC.T
        return Pairs(labels_R=self.labels_C, labels_C=self.labels_R, weights_RC=weights_CR)


class Statistics(NamedTuple):
    """What the forward pass finds for each anchor, and all that the backward pass needs of it."""

    loss_R: Tensor
    log_D_R: Tensor
    """Logarithm of the paper's D."""
    total_R: Tensor
    """Sum of the positives' weights: |P(i)| with labels. 0 marks an anchor without a positive, which is not used."""
    log_S_R: Tensor
    """Logarithm of the weighted sum of exp(s/τ) over positives, which only the variant `in` uses."""


class Anchors(NamedTuple):
    """What each anchor brings to the gradient: the upstream gradient of its loss, and its statistics."""

    upstream: Tensor
    """One value an anchor; an expanded single number where it is the same for all."""
    divisor: Tensor
    """What the upstream gradient is still to be divided by: a single number."""
    log_D: Tensor
    total: Tensor
    log_S: Tensor


def exponent_is_safe(num_columns: int, knobs: Knobs, bound: float | None, dtype: torch.dtype) -> bool:
    """Whether exp(s/τ) and its sums can be taken as they are, for similarities of at most `bound` in size.

    Without a bound, that is without normalised embeddings, they cannot, and a maximum is subtracted.
    """
    if bound is None:
        return False
    limit = 700.0 if dtype == torch.float64 else 75.0
    attracted = bound / knobs.temperature + math.log(max(num_columns * max(knobs.k2, 1.0), 2.0))
    pulled = bound + math.log(max(num_columns * knobs.k1, 2.0))
    return max(attracted, pulled) < limit
