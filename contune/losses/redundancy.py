"""Two views alike and the dimensions of an embedding unlike: Barlow Twins and VICReg, which need no negatives.

Shapes: B samples, row by row the same in both views; D embedding size.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from contune.errors import UserError
from contune.losses.checks import check_not_negative, check_rows, embeddings


def barlow_twins_loss(z1: Tensor, z2: Tensor, *, redundancy: float = 0.0051) -> Tensor:
    """The loss of Barlow Twins (Zbontar et al. 2021), equations 1 and 2.

        for each pair of dimensions i, j:
            C_ij = mean over the batch of z1_i · z2_j, both standardised
        loss = Σ_i (1 - C_ii)² + λ Σ_i Σ_{j≠i} C_ij²

    z1, z2: (B, d). redundancy: λ. A dimension is standardised as batch-norm does it, with 1e-5 added to its
    variance, in the authors' code as here. Views that have collapsed to a point give d.
    """
    check_not_negative("redundancy", redundancy)
    with torch.autocast(z1.device.type, enabled=False):
        z1_BD, z2_BD = (standardized(z_BD) for z_BD in two_views(z1, z2))
        C_DD = z1_BD.T @ z2_BD / len(z1_BD)
        invariance = (1 - C_DD.diagonal()).square().sum()
        return invariance + redundancy * off_diagonal(C_DD).square().sum()


def vicreg_loss(
    z1: Tensor, z2: Tensor, *, invariance: float = 25.0, variance: float = 25.0, covariance: float = 1.0
) -> Tensor:
    """Variance-invariance-covariance regularisation (Bardes et al. 2022), equations 1 to 6.

        s = mean over samples and dimensions of (z1 - z2)²
        for each view z:
            v(z) = mean over dimensions of max(0, 1 - √(Var(z_i) + 0.0001))
            c(z) = Σ_i Σ_{j≠i} Cov(z_i, z_j)² / d
        loss = invariance · s + variance · (v(z1) + v(z2)) + covariance · (c(z1) + c(z2))

    z1, z2: (B, d). Equation 5 sums s over dimensions; the authors' code takes the mean, and the weights 25, 25, 1
    belong to that. The code also halves v, where the paper and the recipes on CIFAR do not. A collapsed batch
    gives 2 · 25 · 0.99.
    """
    for name, weight in (("invariance", invariance), ("variance", variance), ("covariance", covariance)):
        check_not_negative(name, weight)
    with torch.autocast(z1.device.type, enabled=False):
        z1_BD, z2_BD = two_views(z1, z2)
        s = F.mse_loss(z1_BD, z2_BD)
        v = _missing_deviation(z1_BD) + _missing_deviation(z2_BD)
        c = _mean_covariance(z1_BD) + _mean_covariance(z2_BD)
        return invariance * s + variance * v + covariance * c


def two_views(z1: Tensor, z2: Tensor) -> tuple[Tensor, Tensor]:
    """Both, checked, in float32 or better."""
    check_rows("z1", z1, "z2", z2)
    if len(z1) < 2:
        raise UserError(f"this loss needs the variance over a batch, and {len(z1)} sample has none; give 2 or more")
    return embeddings(z1, normalize=False), embeddings(z2, normalize=False)


def standardized(z_BD: Tensor) -> Tensor:
    """Every dimension with mean 0 and variance 1 over the batch; one that does not vary is 0."""
    return F.batch_norm(z_BD, None, None, training=True)


def off_diagonal(matrix_DD: Tensor) -> Tensor:
    """The same with zeros on the diagonal."""
    return matrix_DD - matrix_DD.diagonal().diag()


def _missing_deviation(z_BD: Tensor) -> Tensor:
    return F.relu(1 - (z_BD.var(dim=0) + 1e-4).sqrt()).mean()


def _mean_covariance(z_BD: Tensor) -> Tensor:
    centred_BD = z_BD - z_BD.mean(dim=0)
    covariance_DD = centred_BD.T @ centred_BD / (len(z_BD) - 1)
    return off_diagonal(covariance_DD).square().sum() / z_BD.shape[1]
