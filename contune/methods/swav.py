"""SwAV (Caron et al. 2020): predicts, from one view of an image, the prototypes that another view is assigned to.

Shapes: N rows, B images, V views of each, of which the first T are global; D embedding size, K prototypes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from contune import distributed
from contune.kernels.fused import wide_product
from contune.methods.base import Method, Output, WithoutLabels, at_least_float32, check_views
from contune.methods.dino import other_views_loss
from contune.models.heads import Prototypes, Queue, mlp
from contune.settings import ranged


class SwAV(Method):
    """Algorithm 1 of the paper, with solo-learn's values for small images.

    Prototypes are unit vectors. The authors normalize them after each step; we normalize them where they are used.
    solo-learn lets their lengths be learned.
    """

    @dataclass(kw_only=True)
    class Settings(WithoutLabels):
        temperature: float = ranged(0.1, above=0.0)
        """Temperature of the predicted assignments."""
        epsilon: float = ranged(0.05, low=0.005)
        """Softness of the assignments before Sinkhorn-Knopp balances them. In short runs 0.03 learns sooner."""
        sinkhorn_iterations: int = ranged(3, low=1)
        """Number of iterations of Sinkhorn-Knopp."""
        queue_size: int = ranged(3840, low=0)
        """Embeddings of earlier batches that join the assignment, for batches smaller than the number of prototypes."""
        queue_epoch: float = ranged(50.0, low=0.0)
        """The epoch from which the queue is used, once it is full."""
        frozen_epochs: float = ranged(2.0, low=0.0)
        """Epochs for which the prototypes keep their initial values."""
        projector_dim: int = ranged(128, low=1)
        num_prototypes: int = ranged(3000, low=2)
        """Number of prototypes."""
        global_views: int = ranged(2, low=2)
        """The first views, which are assigned. The others, which may be small crops, only predict."""

    settings: Settings
    queues: Any
    """A ModuleList of one `Queue` for each global view."""

    def __init__(self, encoder: nn.Module, num_features: int, num_classes: int, settings: Settings) -> None:
        super().__init__(encoder, num_features, num_classes, settings)
        self.projector = mlp([num_features, settings.projector_hidden, settings.projector_dim])
        self.prototypes = Prototypes(settings.projector_dim, settings.num_prototypes, settings.frozen_epochs)
        num_queues = settings.global_views if settings.queue_size else 0
        self.queues = nn.ModuleList(Queue(settings.queue_size, settings.projector_dim) for _ in range(num_queues))

    def forward(self, views: Sequence[Tensor], labels_B: Tensor | None) -> Output:
        check_views(views, self.settings.global_views)
        features_ND = self.encode(views)
        projected_ND = self.projector(features_ND)
        # In float32 also under autocast, because temperatures are low.
        with torch.autocast(features_ND.device.type, enabled=False):
            c_KD = F.normalize(self.prototypes.weight, dim=1)
            z_ND = F.normalize(projected_ND.to(c_KD.dtype), dim=1)
            scores_VBK = (z_ND @ c_KD.T).unflatten(0, (len(views), -1))
            z_TBD = z_ND.detach().unflatten(0, (len(views), -1))[: self.settings.global_views]
            assignments_TBK = self._assign(z_TBD, c_KD)
        loss = swapped_prediction_loss(scores_VBK, assignments_TBK, temperature=self.settings.temperature)
        return Output(loss=loss, features_ND=features_ND.detach(), state={"z_TBD": z_TBD})

    @torch.no_grad()
    def after_step(self, output: Output) -> None:
        self.prototypes.after_step(self.epoch)
        for queue, z_BD in zip(self.queues, output.state["z_TBD"], strict=False):
            queue.push(z_BD)

    @torch.no_grad()
    def _assign(self, z_TBD: Tensor, c_KD: Tensor) -> Tensor:
        """Assigns each view's rows together with those of all processes and, from queue_epoch on, the view's queue."""
        parts = [distributed.gather(z_TBD.transpose(0, 1)).transpose(0, 1)]
        weights = [torch.ones_like(parts[0][..., 0])]
        if len(self.queues):
            # The queue always takes part, with weight 0 before its epoch, so that every step runs the same operations.
            size = self.settings.queue_size
            is_full_T = torch.stack([queue.num_seen for queue in self.queues]) == size
            in_use_T1 = ((self.epoch >= self.settings.queue_epoch) & is_full_T).unsqueeze(1)
            weights.append(in_use_T1.expand(-1, size))
            parts.append(torch.stack([queue.values_KD for queue in self.queues]))
        num = z_TBD.shape[1]
        start = distributed.rank() * num
        return sinkhorn(
            torch.cat(parts, dim=1),
            c_KD,
            torch.cat(weights, dim=1),
            wanted=slice(start, start + num),
            epsilon=self.settings.epsilon,
            num_iterations=self.settings.sinkhorn_iterations,
        )


@torch.no_grad()
def sinkhorn(
    z_TND: Tensor,
    prototypes_KD: Tensor,
    weights_TN: Tensor,
    *,
    wanted: slice,
    epsilon: float = 0.05,
    num_iterations: int = 3,
) -> Tensor:
    """Soft assignments of rows to prototypes, equations 3 to 5: each row sums to 1, each prototype gets the same share.

        for each view, with unit vectors z and c:
            Q = exp(z · cᵀ / ε)
            repeat num_iterations times:
                divide each column of Q by its sum
                divide each row of Q by its sum

    The last division is by rows, so row sums are exact and column sums converge.

    weights_TN: the weight of each row in the column sums. A row of weight 0 is assigned but does not affect the others.
    wanted: the rows to return.

    With q = exp(z · cᵀ / ε), Q_nk = q_nk / (row_n · column_k) throughout. So we never build Q: its sums are products of
    q with a vector. If ε is so small that a number could leave float32's range, we compute in float64.
    """
    dtype = at_least_float32(z_TND).dtype
    # Two entries of q differ by up to e^(2/ε), sums of them by as much, and with many iterations by its power 3/2.
    if 2 / epsilon > (70 if num_iterations <= 5 else 50):  # float32 spans e⁻⁸⁷ to e⁸⁸
        z_TND = z_TND.double()
    z_TND = at_least_float32(z_TND) / epsilon
    c_KD = prototypes_KD.to(z_TND.dtype)
    if z_TND.is_cuda and z_TND.dtype != torch.float64:  # float32 would take as long as the rest together
        q_TNK: Tensor = wide_product(z_TND.half().flatten(0, 1), c_KD.half().T).view(*z_TND.shape[:2], -1).exp_()
    else:
        q_TNK = (z_TND @ c_KD.T).exp_()
    weights_TN1 = weights_TN.to(z_TND.dtype).unsqueeze(2)
    # The weights sum to the number of columns, so that neither rows nor columns grow with the iterations.
    share_TN1 = weights_TN1 * (q_TNK.shape[2] / weights_TN1.sum(dim=1, keepdim=True))
    column_TK1 = q_TNK.mT @ share_TN1
    for _ in range(num_iterations - 1):
        row_TN1 = q_TNK @ column_TK1.reciprocal()
        column_TK1 = q_TNK.mT @ (share_TN1 / row_TN1)
    assigned_TRK = q_TNK[:, wanted] / column_TK1.mT
    return (assigned_TRK / assigned_TRK.sum(dim=2, keepdim=True)).to(dtype)


def swapped_prediction_loss(scores_VBK: Tensor, assignments_TBK: Tensor, *, temperature: float = 0.1) -> Tensor:
    """Equation 2 for any number of views, as a mean over pairs of views and images.

    for each view t with assignments, each other view v ≠ t, each image b:
        loss_tvb = - Σ_k assignments_tbk · log softmax(scores_vb / τ)_k
    """
    return other_views_loss(assignments_TBK, at_least_float32(scores_VBK) / temperature)
