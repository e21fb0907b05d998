"""Batch-hard triplets (Hermans et al. 2017)."""

from dataclasses import dataclass

from torch import Tensor

from contune import distributed
from contune.losses import triplet_loss
from contune.methods.pairwise import PairwiseMethod
from contune.settings import ranged


class Triplet(PairwiseMethod):
    """Compares each anchor with its farthest positive and its nearest negative in the batch."""

    @dataclass(kw_only=True)
    class Settings(PairwiseMethod.Settings):
        margin: float = ranged(0.3, low=0.0)
        """How much farther away a negative has to be than a positive."""

    settings: Settings

    def pair_loss(self, z_ND: Tensor, groups_N: Tensor) -> Tensor:
        return triplet_loss(distributed.gather(z_ND), distributed.gather(groups_N), margin=self.settings.margin)
