"""ARB: Align Representations with Base (Zhang et al. 2022)."""

from dataclasses import dataclass

from torch import Tensor

from contune.losses import arb_loss
from contune.methods.view_pairs import ViewPairMethod
from contune.settings import ranged


class ARB(ViewPairMethod):
    """Each dimension of a view drawn to an orthonormal base of the other, the nearest to it."""

    @dataclass(kw_only=True)
    class Settings(ViewPairMethod.Settings):
        ridge: float = ranged(1e-5, above=0.0)
        """Added to the covariance's diagonal before it is inverted."""
        loss_scale: float = ranged(0.1, above=0.0)
        """Factor on the loss, as in Barlow Twins."""

    settings: Settings

    def view_loss(self, z1_BD: Tensor, z2_BD: Tensor) -> Tensor:
        return self.settings.loss_scale * arb_loss(z1_BD, z2_BD, ridge=self.settings.ridge)
