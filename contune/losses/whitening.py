"""Whitened views that agree: W-MSE, which cannot collapse, since a whitened batch is spread by construction.

Shapes: B samples, row by row the same in both views; G sub-batches of S samples; D embedding size; 2 where
both views are one tensor.
"""

import torch
from torch import Tensor

from contune.errors import UserError
from contune.losses.checks import check_positive, check_tensors
from contune.losses.prediction import regression_loss
from contune.losses.redundancy import two_views

SMALLEST = 1e-12
"""Added to a variance, for a batch that has collapsed to a point."""


def wmse_loss(z1: Tensor, z2: Tensor, *, size: int = 128) -> Tensor:
    """The loss of W-MSE (Ermolov et al. 2021, section 3).

        for each sub-batch of `size` samples, the same ones in both views:
            w1, w2 = whiten(z1), whiten(z2)
            for each sample i:
                loss_i = |w1_i / |w1_i| - w2_i / |w2_i||² = 2 - 2 cos(w1_i, w2_i)

    z1, z2: (B, d); the mean over all samples, from 0 to 4, and 2 for a batch that has collapsed to a point.

    The authors draw the sub-batches anew in each iteration; here sub-batch g has the rows g, g + G, g + 2G, …: batches
    are shuffled already, and a step stays a function of its batch. They are of equal size: B is split into as many
    as divide it and have `size` samples or more, and is one sub-batch where it is smaller than that.
    """
    check_tensors(z1=z1, z2=z2)
    check_positive("size", size)
    with torch.autocast(z1.device.type, enabled=False):
        z_2GSD = torch.stack([sub_batches(z_BD, size) for z_BD in two_views(z1, z2)])
        return regression_loss(*whiten(z_2GSD).flatten(1, 2))


def sub_batches(z_BD: Tensor, size: int) -> Tensor:
    """(G, S, D) with S at least `size`, or all of B."""
    num = len(z_BD)
    num_parts = next(parts for parts in range(max(1, num // size), 0, -1) if num % parts == 0)
    z_SGD: Tensor = z_BD.unflatten(0, (-1, num_parts))
    return z_SGD.transpose(0, 1)


def whiten(z: Tensor) -> Tensor:
    """(…, N, d) with mean 0 and the covariance matrix I over the N samples, by the Cholesky factor L of theirs.

        covariance + ridge = L Lᵀ,   w = L⁻¹ (z - mean)

    The authors' choice among all whitenings, which differ by a rotation. They add no ridge; ours, a millionth of the
    trace in float32, is what rounding can take from the smallest eigenvalue, and a direction that has 10⁻⁴ of the
    variance loses a percent of it. Nothing waits for the device: a factorisation that fails would come out as NaN.
    """
    num, dim = z.shape[-2:]
    if num <= dim:
        raise UserError(
            f"{num} embeddings of size {dim} cannot be whitened, which takes more than {dim}; take larger batches "
            "(optim.batch_images), a whitening size above the embedding's, or a smaller embedding (projector_dim)"
        )
    centred = z - z.mean(dim=-2, keepdim=True)
    covariance = centred.mT @ centred / (num - 1)
    trace = covariance.diagonal(dim1=-2, dim2=-1).sum(dim=-1)
    ridge = 8 * torch.finfo(z.dtype).eps * trace + SMALLEST
    eye = torch.eye(dim, dtype=z.dtype, device=z.device)
    factor, _ = torch.linalg.cholesky_ex(covariance + ridge[..., None, None] * eye)
    whitened: Tensor = torch.linalg.solve_triangular(factor, centred.mT, upper=False).mT
    return whitened
