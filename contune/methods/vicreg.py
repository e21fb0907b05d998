"""VICReg: variance-invariance-covariance regularisation (Bardes et al. 2022)."""

from dataclasses import dataclass

from torch import Tensor

from contune.losses import vicreg_loss
from contune.methods.view_pairs import ViewPairMethod
from contune.settings import ranged


class VICReg(ViewPairMethod):
    """Views that agree, dimensions that each vary, and no two that vary together."""

    @dataclass(kw_only=True)
    class Settings(ViewPairMethod.Settings):
        invariance: float = ranged(25.0, low=0.0)
        """Weight of the squared distance between views, the paper's λ."""
        variance: float = ranged(25.0, low=0.0)
        """Weight of what a dimension's deviation lacks to 1, μ."""
        covariance: float = ranged(1.0, low=0.0)
        """Weight of the squared covariances between dimensions, ν."""

    settings: Settings

    def view_loss(self, z1_BD: Tensor, z2_BD: Tensor) -> Tensor:
        knobs = self.settings
        return vicreg_loss(
            z1_BD, z2_BD, invariance=knobs.invariance, variance=knobs.variance, covariance=knobs.covariance
        )
