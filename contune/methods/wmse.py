"""W-MSE: whitening for self-supervised representation learning (Ermolov et al. 2021).

Shapes: B images, row by row the same in both views; G sub-batches of S images; D embedding size; 2 where both views
form one tensor.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from contune.errors import UserError
from contune.methods.byol import regression_loss
from contune.methods.view_pairs import ViewPairMethod
from contune.settings import ranged


class WMSE(ViewPairMethod):
    """Views that agree after whitening. A whitened batch is spread by construction, so it cannot collapse.

    The paper can average over several random splits of a batch. Its runs on CIFAR use one, as we do.
    """

    @dataclass(kw_only=True)
    class Settings(ViewPairMethod.Settings):
        projector_hidden: int = ranged(1024, low=1)
        projector_dim: int = ranged(64, low=1)
        whitening_size: int = ranged(128, low=2)
        """Number of images whitened together. It must exceed projector_dim; twice as many work well."""

    settings: Settings
    num_hidden = 1

    def view_loss(self, z1_BD: Tensor, z2_BD: Tensor) -> Tensor:
        return wmse_loss(z1_BD, z2_BD, size=self.settings.whitening_size)


def wmse_loss(z1_BD: Tensor, z2_BD: Tensor, *, size: int = 128) -> Tensor:
    """Section 3: the mean over all images, from 0 to 4. A batch that has collapsed to a point gives 2.

        for each sub-batch of `size` images, the same in both views:
            w1, w2 = whiten(z1), whiten(z2)
            for each image i:
                loss_i = |w1_i / |w1_i| - w2_i / |w2_i||² = 2 - 2 cos(w1_i, w2_i)

    The authors draw new sub-batches in each iteration. Our batches are already shuffled, so sub-batch g takes the rows
    g, g + G, g + 2G, …, and a step stays a function of its batch. All sub-batches have the same number of images: we
    use as many as divide B and hold `size` images or more. A batch below `size` is one sub-batch.
    """
    num = len(z1_BD)
    num_parts = next(parts for parts in range(max(1, num // size), 0, -1) if num % parts == 0)
    z_2GSD = torch.stack([z_BD.unflatten(0, (-1, num_parts)).transpose(0, 1) for z_BD in (z1_BD, z2_BD)])
    return regression_loss(*whiten(z_2GSD).flatten(1, 2))


def whiten(z: Tensor) -> Tensor:
    """(…, N, d) with mean 0 and covariance I over the N rows, by the Cholesky factor L of their covariance.

        covariance + ridge = L Lᵀ,   w = L⁻¹ (z - mean)

    The authors chose this among all whitenings, which differ by a rotation. They add no ridge. Ours, a millionth of the
    trace in float32, covers what rounding can take from the smallest eigenvalue; a direction with 10⁻⁴ of the variance
    loses one percent of it. The host never waits for the device: a failed factorization gives NaN.
    """
    num, dim = z.shape[-2:]
    if num <= dim:
        fix = "raise optim.batch_images or method.whitening_size, or lower method.projector_dim"
        raise UserError(f"whitening needs more than {dim} embeddings of size {dim} and got {num}; {fix}")
    centered = z - z.mean(dim=-2, keepdim=True)
    covariance = centered.mT @ centered / (num - 1)
    trace = covariance.diagonal(dim1=-2, dim2=-1).sum(dim=-1)
    ridge = 8 * torch.finfo(z.dtype).eps * trace + 1e-12  # not 0 where the batch has collapsed to a point
    eye = torch.eye(dim, dtype=z.dtype, device=z.device)
    factor, _ = torch.linalg.cholesky_ex(covariance + ridge[..., None, None] * eye)
    whitened: Tensor = torch.linalg.solve_triangular(factor, centered.mT, upper=False).mT
    return whitened
