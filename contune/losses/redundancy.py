"""Two views alike and the dimensions of an embedding unlike: Barlow Twins and VICReg, which need no negatives.

Shapes: B samples, row by row the same in both views; D embedding size; 2 where both views are one tensor.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from contune.errors import UserError
from contune.losses.checks import check_not_negative, check_rows, check_tensors, embeddings


def barlow_twins_loss(z1: Tensor, z2: Tensor, *, redundancy: float = 0.0051) -> Tensor:
    """The loss of Barlow Twins (Zbontar et al. 2021), equations 1 and 2.

        for each pair of dimensions i, j:
            C_ij = mean over the batch of z1_i · z2_j, both standardised
        loss = Σ_i (1 - C_ii)² + λ Σ_i Σ_{j≠i} C_ij²

    z1, z2: (B, d). redundancy: λ. A dimension is standardised as batch-norm does it, with 1e-5 added to its
    variance, in the authors' code as here. Views that have collapsed to a point give d.
    """
    check_tensors(z1=z1, z2=z2)
    check_not_negative("redundancy", redundancy)
    with torch.autocast(z1.device.type, enabled=False):
        z1_BD, z2_BD = z_2BD = standardized_views(z1, z2)
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
    check_tensors(z1=z1, z2=z2)
    for name, weight in (("invariance", invariance), ("variance", variance), ("covariance", covariance)):
        check_not_negative(name, weight)
    with torch.autocast(z1.device.type, enabled=False):
        z1_BD, z2_BD = two_views(z1, z2)
        num, dim = z1_BD.shape
        z_2BD = torch.stack([z1_BD, z2_BD])
        centred_2BD = z_2BD - z_2BD.mean(dim=1, keepdim=True)
        variance_2D = centred_2BD.square().sum(dim=1) / (num - 1)
        s = F.mse_loss(z1_BD, z2_BD)
        v = F.relu(1 - (variance_2D + 1e-4).sqrt()).sum() / dim
        if has_many_dimensions(num, dim):
            gram_2BB = centred_2BD @ centred_2BD.mT / (num - 1)
            c = (gram_2BB.square().sum() - variance_2D.square().sum()) / dim
        else:
            c = off_diagonal(centred_2BD.mT @ centred_2BD / (num - 1)).square().sum() / dim
        return invariance * s + variance * v + covariance * c


def two_views(z1: Tensor, z2: Tensor) -> tuple[Tensor, Tensor]:
    """Both, checked, in float32 or better."""
    check_rows("z1", z1, "z2", z2)
    if len(z1) < 2:
        raise UserError(f"this loss needs the variance over a batch, and {len(z1)} sample has none; give 2 or more")
    return embeddings(z1, normalize=False), embeddings(z2, normalize=False)


def has_many_dimensions(num: int, dim: int) -> bool:
    """Whether the squares off the diagonal of a (D, D) product C = XᵀY are best had from (B, B) ones.

        Σ_i Σ_{j≠i} C_ij² = Σ_a Σ_b (XXᵀ)_ab (YYᵀ)_ab - Σ_i C_ii²

    These are D / B times cheaper. C has no rank above B, so that with twice as many dimensions, all of one variance, at
    least half of the first sum lies off the diagonal however they are spread: the difference loses no digits.
    """
    return dim >= 2 * num


def standardized(z_BD: Tensor) -> Tensor:
    """Every dimension with mean 0 and variance 1 over the batch; one that does not vary is 0."""
    return F.batch_norm(z_BD, None, None, training=True)


def standardized_views(z1: Tensor, z2: Tensor) -> Tensor:
    """Both views, checked, each by itself: (2, B, D)."""
    z_B2D: Tensor = standardized(torch.cat(two_views(z1, z2), dim=1)).unflatten(1, (2, -1))
    return z_B2D.transpose(0, 1)


def off_diagonal(matrix: Tensor) -> Tensor:
    """The same, (…, D, D), with zeros on the diagonal."""
    return matrix - matrix.diagonal(dim1=-2, dim2=-1).diag_embed()
