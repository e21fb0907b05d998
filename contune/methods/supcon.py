"""Supervised Contrastive Learning (Khosla et al. 2020)."""

from dataclasses import dataclass

from torch import Tensor

from contune.kernels import LossSettings
from contune.losses import supcon_loss
from contune.losses.dispatch import VARIANTS
from contune.methods.pairwise import PairwiseMethod
from contune.settings import one_of, ranged


class SupCon(PairwiseMethod):
    """The supervised contrastive loss on labels."""

    @dataclass(kw_only=True)
    class Settings(PairwiseMethod.Settings):
        temperature: float = ranged(0.1, above=0.0)
        """Similarities are divided by it. Lower values give hard pairs more weight."""
        variant: str = one_of("out", VARIANTS)
        """Position of the mean over positives: `out`side the logarithm (the paper's choice) or `in`side."""

    settings: Settings

    @property
    def knobs(self) -> LossSettings:
        return LossSettings(self.settings.temperature, 0.0, 1.0, self.settings.variant)

    def pair_loss(self, z_ND: Tensor, groups_N: Tensor) -> Tensor:
        knobs = self.settings
        return supcon_loss(z_ND, groups_N, temperature=knobs.temperature, variant=knobs.variant, distributed=True)
