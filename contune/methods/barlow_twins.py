"""Barlow Twins (Zbontar et al. 2021)."""

from dataclasses import dataclass

from torch import Tensor

from contune.losses import barlow_twins_loss
from contune.methods.view_pairs import ViewPairMethod
from contune.settings import ranged


class BarlowTwins(ViewPairMethod):
    """The correlations between the dimensions of two views, made the identity matrix."""

    @dataclass(kw_only=True)
    class Settings(ViewPairMethod.Settings):
        redundancy: float = ranged(0.0051, low=0.0)
        """λ, the weight of each pair of different dimensions; each dimension with itself has 1."""
        loss_scale: float = ranged(0.1, above=0.0)
        """Factor on the loss, which is a sum over dimensions; for parameters that LARS does not scale."""

    settings: Settings

    def view_loss(self, z1_BD: Tensor, z2_BD: Tensor) -> Tensor:
        knobs = self.settings
        return knobs.loss_scale * barlow_twins_loss(z1_BD, z2_BD, redundancy=knobs.redundancy)
