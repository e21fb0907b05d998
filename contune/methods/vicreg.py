"""VICReg: variance-invariance-covariance regularization (Bardes et al. 2022).

Shapes: B images, row by row the same in both views; D embedding size; 2 where both views form one tensor.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from contune.methods.view_pairs import ViewPairMethod, has_many_dimensions, off_diagonal
from contune.settings import ranged


class VICReg(ViewPairMethod):
    """Views that agree, dimensions that each vary, and no two that vary together."""

    @dataclass(kw_only=True)
    class Settings(ViewPairMethod.Settings):
        invariance: float = ranged(25.0, low=0.0)
        """Weight of the squared distance between views, the paper's λ."""
        variance: float = ranged(25.0, low=0.0)
        """Weight of the shortfall of each dimension's standard deviation from 1, the paper's μ."""
        covariance: float = ranged(1.0, low=0.0)
        """Weight of the squared covariances between dimensions, the paper's ν."""

    settings: Settings

    def view_loss(self, z1_BD: Tensor, z2_BD: Tensor) -> Tensor:
        w = self.settings
        return vicreg_loss(z1_BD, z2_BD, invariance=w.invariance, variance=w.variance, covariance=w.covariance)


def vicreg_loss(
    z1_BD: Tensor, z2_BD: Tensor, *, invariance: float = 25.0, variance: float = 25.0, covariance: float = 1.0
) -> Tensor:
    """Equations 1 to 6.

        s = mean over images and dimensions of (z1 - z2)²
        for each view z:
            v(z) = mean over dimensions of max(0, 1 - √(Var(z_i) + 0.0001))
            c(z) = Σ_i Σ_{j≠i} Cov(z_i, z_j)² / D
        loss = invariance · s + variance · (v(z1) + v(z2)) + covariance · (c(z1) + c(z2))

    Equation 5 sums s over dimensions. The authors' code takes the mean, and the weights 25, 25, 1 belong to the mean.
    The code also halves v; the paper and the recipes on CIFAR do not. A collapsed batch gives 2 · 25 · 0.99.
    """
    num, dim = z1_BD.shape
    z_2BD = torch.stack([z1_BD, z2_BD])
    centered_2BD = z_2BD - z_2BD.mean(dim=1, keepdim=True)
    variance_2D = centered_2BD.square().sum(dim=1) / (num - 1)
    s = F.mse_loss(z1_BD, z2_BD)
    v = F.relu(1 - (variance_2D + 1e-4).sqrt()).sum() / dim
    if has_many_dimensions(num, dim):
        gram_2BB = centered_2BD @ centered_2BD.mT / (num - 1)
        c = (gram_2BB.square().sum() - variance_2D.square().sum()) / dim
    else:
        c = off_diagonal(centered_2BD.mT @ centered_2BD / (num - 1)).square().sum() / dim
    return invariance * s + variance * v + covariance * c
