"""Mean coefficients of pairs by their similarity: the curves behind hard and easy.

Shapes: R anchors, C candidates, B bins.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from contune.analysis.gradients.anchors import Anchors
from contune.analysis.gradients.coefficients import coefficients_of
from contune.kernels import LossSettings

NUM_BINS = 100
FEWEST_PAIRS = 20
"""A bin with fewer says nothing."""


@dataclass
class Profile:
    """Sums over batches; bins are equal parts of the similarities from -1 to 1."""

    count_B: Tensor
    sums_B: dict[str, Tensor]

    @classmethod
    def empty(cls) -> "Profile":
        zeros_B = torch.zeros(NUM_BINS, dtype=torch.float64)
        return cls(zeros_B, {"tcl": zeros_B.clone(), "supcon": zeros_B.clone()})

    def add(self, sim_K: Tensor, values: dict[str, Tensor]) -> None:
        bins_K = ((sim_K + 1) / 2 * NUM_BINS).long().clamp(0, NUM_BINS - 1)
        self.count_B += bins_K.bincount(minlength=NUM_BINS).cpu().double()
        for name, value_K in values.items():
            self.sums_B[name] += bins_K.bincount(value_K, minlength=NUM_BINS).cpu().double()

    def to_dict(self) -> dict[str, Any]:
        """Bins that have pairs enough: the similarity in their middle, their share of all pairs, mean coefficients."""
        filled_B = self.count_B >= FEWEST_PAIRS
        middles_B = (torch.arange(NUM_BINS) + 0.5) * 2 / NUM_BINS - 1
        shares_B = self.count_B / self.count_B.sum().clamp(min=1)
        means = {name: (sums_B / self.count_B)[filled_B].tolist() for name, sums_B in self.sums_B.items()}
        rounded = [round(middle, 6) for middle in middles_B[filled_B].tolist()]
        return {"similarity": rounded, "share": shares_B[filled_B].tolist(), **means}


@dataclass
class Profiles:
    """Pull towards positives, X - P + Y (below 0: pushed away), and push from negatives, P_in."""

    positive: Profile
    negative: Profile

    @classmethod
    def empty(cls) -> "Profiles":
        return cls(Profile.empty(), Profile.empty())

    @torch.no_grad()
    def add(self, anchors: Anchors, knobs: LossSettings) -> None:
        for compared in anchors.blocks(knobs.temperature):
            tcl, supcon = (coefficients_of(compared, k) for k in (knobs, LossSettings(knobs.temperature, 0.0, 1.0)))
            positive_RC, negative_RC, sim_RC = compared.positive_RC, compared.negative_RC, compared.sim_RC
            pull = {"tcl": -tcl.positive_RC[positive_RC], "supcon": -supcon.positive_RC[positive_RC]}
            push = {"tcl": tcl.N_RC[negative_RC], "supcon": supcon.N_RC[negative_RC]}
            self.positive.add(sim_RC[positive_RC], pull)
            self.negative.add(sim_RC[negative_RC], push)

    def to_dict(self) -> dict[str, Any]:
        return {"positive": self.positive.to_dict(), "negative": self.negative.to_dict()}
