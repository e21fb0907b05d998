"""Methods that compare whole views of the batch, two at a time. They differ only in their loss.

Shapes: B images, N rows of all stacked views, V views, D embedding size; 2 where both views form one tensor.
"""

from collections.abc import Sequence
from itertools import combinations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from contune import distributed
from contune.methods.base import Method, Output, WithoutLabels, at_least_float32, check_views
from contune.models.heads import mlp


class ViewPairMethod(Method):
    """Encoder, projector with batch-norm, and a loss averaged over all pairs of views.

    None of these losses changes if all embeddings shift, so the projector's last layer has no bias.
    """

    class Settings(WithoutLabels):
        """The sizes of the projector."""

    settings: Settings
    num_hidden = 2
    """Number of hidden layers in the projector."""

    def __init__(self, encoder: nn.Module, num_features: int, num_classes: int, settings: Settings) -> None:
        super().__init__(encoder, num_features, num_classes, settings)
        hidden = [settings.projector_hidden] * self.num_hidden
        self.projector = mlp([num_features, *hidden, settings.projector_dim], bias=False)

    def view_loss(self, z1_BD: Tensor, z2_BD: Tensor) -> Tensor:
        """The loss of two views of the global batch. Row i of both belongs to image i."""
        raise NotImplementedError

    def forward(self, views: Sequence[Tensor], labels_B: Tensor | None) -> Output:
        check_views(views)
        features_ND = self.encode(views)
        z_BVD = self.projector(features_ND).unflatten(0, (len(views), -1)).transpose(0, 1)
        z_VBD = distributed.gather(z_BVD).unbind(dim=1)
        with torch.autocast(features_ND.device.type, enabled=False):
            losses = [self.view_loss(*map(at_least_float32, pair)) for pair in combinations(z_VBD, 2)]
        return Output(loss=torch.stack(losses).mean(), features_ND=features_ND.detach())


def standardized_views(*views: Tensor) -> Tensor:
    """(V, B, D): every dimension of every view has mean 0 and variance 1 over the batch. A constant one becomes 0."""
    z_BD = F.batch_norm(torch.cat(views, dim=1), None, None, training=True)
    return z_BD.unflatten(1, (len(views), -1)).transpose(0, 1)  # type: ignore[no-any-return]


def has_many_dimensions(num: int, dim: int) -> bool:
    """Whether to compute the squares off the diagonal of a (D, D) product C = XᵀY from (B, B) products.

        Σ_i Σ_{j≠i} C_ij² = Σ_a Σ_b (XXᵀ)_ab (YYᵀ)_ab - Σ_i C_ii²

    The right side is D / B times cheaper. The rank of C is at most B. With D ≥ 2B dimensions of equal variance, at
    least half of the first sum lies off the diagonal, so the difference loses no digits.
    """
    return dim >= 2 * num


def off_diagonal(matrix: Tensor) -> Tensor:
    """The matrix (…, D, D) with zeros on its diagonal."""
    return matrix - matrix.diagonal(dim1=-2, dim2=-1).diag_embed()
