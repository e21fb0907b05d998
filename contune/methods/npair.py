"""Multi-class N-pair (Sohn 2016)."""

from dataclasses import dataclass

from torch import Tensor

from contune import distributed
from contune.losses import npair_loss
from contune.methods.pairwise import PairwiseMethod
from contune.settings import ranged


class NPair(PairwiseMethod):
    """Compares each positive pair with all negatives of its anchor."""

    @dataclass(kw_only=True)
    class Settings(PairwiseMethod.Settings):
        temperature: float = ranged(0.1, above=0.0)
        """Similarities are divided by it. Lower values give hard pairs more weight."""

    settings: Settings

    def pair_loss(self, z_ND: Tensor, groups_N: Tensor) -> Tensor:
        return npair_loss(distributed.gather(z_ND), distributed.gather(groups_N), temperature=self.settings.temperature)
