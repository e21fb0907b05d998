"""Anchors beside their candidates: similarities, who is positive, and the sums that make D at any k1 and k2.

Shapes: R anchors, C candidates, D numbers in an embedding.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from contune.kernels import LossSettings
from contune.losses.checks import check_not_negative, check_positive, embeddings
from contune.losses.pairs import Batch

BLOCK_PAIRS = 2**22
"""Pairs held at a time: all of a batch of 2,048."""


@dataclass(frozen=True, kw_only=True)
class Compared:
    """A block of anchors with all their candidates. An anchor without a positive has no pairs at all."""

    sim_RC: Tensor
    weights_RC: Tensor
    """Above 0 for positives, 0 elsewhere."""
    positive_RC: Tensor
    negative_RC: Tensor
    log_pos_R: Tensor
    """log Σ_p exp(s_ip / τ), over positives."""
    log_pull_R: Tensor
    """log Σ_p exp(-s_ip), over positives."""
    log_neg_R: Tensor
    """log Σ_n exp(s_in / τ), over negatives; -∞ where there is none."""
    temperature: float

    def log_D(self, knobs: LossSettings) -> Tensor:
        """Equation 9. 0 for an anchor without a positive, which has nothing to divide."""
        log_D_R = torch.logaddexp(self.log_pos_R, self.log_neg_R + log(knobs.k2))
        log_D_R = torch.logaddexp(log_D_R, self.log_pull_R + log(knobs.k1))
        return log_D_R.masked_fill(self.log_pos_R == -math.inf, 0.0)


@dataclass(frozen=True, kw_only=True)
class Anchors:
    """Who is compared with whom, by labels or by weights, before any similarity is taken."""

    x_RD: Tensor
    y_CD: Tensor
    labels_R: Tensor | None = None
    labels_C: Tensor | None = None
    weights_RC: Tensor | None = None
    own_R: Tensor
    """The column in which each anchor is its own candidate."""

    def thinned(self, most_pairs: int) -> "Anchors":
        """So many of the anchors, evenly spaced, that they have about `most_pairs` pairs, against all candidates."""
        step = max(1, math.ceil(len(self.x_RD) * len(self.y_CD) / most_pairs))
        return self._taken(slice(None, None, step))

    def blocks(self, temperature: float) -> Iterator[Compared]:
        size = max(1, BLOCK_PAIRS // max(1, len(self.y_CD)))
        for start in range(0, max(1, len(self.x_RD)), size):  # of no anchors, one block without any
            yield self._taken(slice(start, start + size)).compared(temperature)

    def compared(self, temperature: float) -> Compared:
        sim_RC = self.x_RD @ self.y_CD.T
        other_RC = self.own_R[:, None] != torch.arange(len(self.y_CD), device=sim_RC.device)
        weights_RC = self._weights(sim_RC.dtype) * other_RC
        positive_RC = weights_RC > 0
        negative_RC = ~positive_RC & other_RC & positive_RC.any(dim=1, keepdim=True)
        logits_RC = sim_RC / temperature
        return Compared(
            sim_RC=sim_RC,
            weights_RC=weights_RC,
            positive_RC=positive_RC,
            negative_RC=negative_RC,
            log_pos_R=logsumexp_where(positive_RC, logits_RC),
            log_pull_R=logsumexp_where(positive_RC, -sim_RC),
            log_neg_R=logsumexp_where(negative_RC, logits_RC),
            temperature=temperature,
        )

    def _taken(self, rows: slice) -> "Anchors":
        return replace(
            self,
            x_RD=self.x_RD[rows],
            labels_R=None if self.labels_R is None else self.labels_R[rows],
            weights_RC=None if self.weights_RC is None else self.weights_RC[rows],
            own_R=self.own_R[rows],
        )

    def _weights(self, dtype: torch.dtype) -> Tensor:
        if self.weights_RC is not None:
            return self.weights_RC
        assert self.labels_R is not None
        assert self.labels_C is not None
        return (self.labels_R[:, None] == self.labels_C[None, :]).to(dtype)


def anchors_of(z: Tensor, labels: Tensor | None, positives: Tensor | None, *, normalize: bool) -> Anchors:
    """Embeddings that are each other's candidates, checked as the losses check them."""
    batch = Batch(z, labels, positives)
    z_ND = embeddings(z.detach(), normalize=normalize)
    batch.check()
    labels_N = None if labels is None else labels.to(z.device)
    weights_NN = None if positives is None else batch.weights(z_ND.dtype)
    own_N = torch.arange(len(z_ND), device=z.device)
    return Anchors(x_RD=z_ND, y_CD=z_ND, labels_R=labels_N, labels_C=labels_N, weights_RC=weights_NN, own_R=own_N)


def check_knobs(knobs: LossSettings) -> None:
    check_positive("temperature", knobs.temperature)
    check_not_negative("k1", knobs.k1)
    check_not_negative("k2", knobs.k2)


def logsumexp_where(mask_RC: Tensor, terms_RC: Tensor) -> Tensor:
    return terms_RC.masked_fill(~mask_RC, -math.inf).logsumexp(dim=1)


def log(x: float) -> float:
    return math.log(x) if x > 0 else -math.inf
