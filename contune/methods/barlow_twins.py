"""Barlow Twins (Zbontar et al. 2021).

Shapes: B images, row by row the same in both views; D embedding size; 2 where both views form one tensor.
"""

from dataclasses import dataclass

from torch import Tensor

from contune.methods.view_pairs import ViewPairMethod, has_many_dimensions, off_diagonal, standardized_views
from contune.settings import ranged


class BarlowTwins(ViewPairMethod):
    """Makes the correlations between the dimensions of two views the identity matrix."""

    @dataclass(kw_only=True)
    class Settings(ViewPairMethod.Settings):
        redundancy: float = ranged(0.0051, low=0.0)
        """λ, the weight of each pair of different dimensions. A dimension with itself has weight 1."""
        loss_scale: float = ranged(0.1, above=0.0)
        """Factor on the loss, which is a sum over dimensions. It matters for parameters that LARS does not scale."""

    settings: Settings

    def view_loss(self, z1_BD: Tensor, z2_BD: Tensor) -> Tensor:
        return self.settings.loss_scale * barlow_twins_loss(z1_BD, z2_BD, redundancy=self.settings.redundancy)


def barlow_twins_loss(z1_BD: Tensor, z2_BD: Tensor, *, redundancy: float = 0.0051) -> Tensor:
    """Equations 1 and 2.

        for each pair of dimensions i, j:
            C_ij = mean over the batch of z1_i · z2_j, both standardized
        loss = Σ_i (1 - C_ii)² + λ Σ_i Σ_{j≠i} C_ij²

    Like the authors' code, we standardize a dimension as batch-norm does, with 1e-5 added to its variance. Views that
    have collapsed to a point give D.
    """
    z1_BD, z2_BD = z_2BD = standardized_views(z1_BD, z2_BD)
    num, dim = z1_BD.shape
    C_D = (z1_BD * z2_BD).mean(dim=0)
    invariance = (1 - C_D).square().sum()
    if has_many_dimensions(num, dim):
        gram1_BB, gram2_BB = z_2BD @ z_2BD.mT / num
        redundant = (gram1_BB * gram2_BB).sum() - C_D.square().sum()
    else:
        redundant = off_diagonal(z1_BD.T @ z2_BD / num).square().sum()
    loss: Tensor = invariance + redundancy * redundant
    return loss
