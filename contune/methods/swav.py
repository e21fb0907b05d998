"""SwAV (Caron et al. 2020): the prototypes that one view of an image is assigned to, predicted from another view.

Shapes: N = V · B rows, B images, V views of each, of which the first T are global; D embedding size, K prototypes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from contune import distributed
from contune.losses import sinkhorn_of_cosines, swapped_prediction_loss
from contune.methods.base import Guess, Method, Output, WithoutLabels
from contune.methods.frozen import Frozen
from contune.methods.multicrop import global_views
from contune.models.heads import Prototypes, mlp
from contune.models.queue import Queue
from contune.settings import ranged


class SwAV(Method):
    """Algorithm 1 of the paper, with solo-learn's values for small images.

    Prototypes have length 1. The authors scale them after each step; here the length is taken out where they are used.
    solo-learn lets it be learnt.
    """

    @dataclass(kw_only=True)
    class Settings(WithoutLabels):
        temperature: float = ranged(0.1, above=0.0)
        epsilon: float = ranged(0.05, above=0.0)
        """How soft assignments are before Sinkhorn-Knopp evens them out; in short runs 0.03 gets under way sooner."""
        sinkhorn_iterations: int = ranged(3, low=1)
        queue_size: int = ranged(3840, low=0)
        """Embeddings of earlier batches that are assigned along, for batches smaller than the prototypes' number."""
        queue_epoch: float = ranged(50.0, low=0.0)
        """The epoch from which they are, once the queue is full."""
        frozen_epochs: float = ranged(2.0, low=0.0)
        """Epochs for which the prototypes stay as they began."""
        projector_hidden: int = ranged(2048, low=1)
        projector_dim: int = ranged(128, low=1)
        num_prototypes: int = ranged(3000, low=2)
        global_views: int = ranged(2, low=2)
        """The first views, which are assigned; further ones, small crops perhaps, only predict."""

    settings: Settings

    def __init__(self, encoder: nn.Module, num_features: int, num_classes: int, settings: Settings) -> None:
        super().__init__(encoder, num_features, num_classes, settings)
        self.projector = mlp([num_features, settings.projector_hidden, settings.projector_dim])
        self.prototypes = Prototypes(settings.projector_dim, settings.num_prototypes)
        self.frozen = Frozen(self.prototypes.weight, settings.frozen_epochs)
        num_queues = settings.global_views if settings.queue_size else 0
        self.queues = nn.ModuleList(Queue(settings.queue_size, settings.projector_dim) for _ in range(num_queues))

    @property
    def guess(self) -> Guess:
        return Guess(math.log(self.settings.num_prototypes), f"a lower method.epsilon than {self.settings.epsilon:g}")

    def forward(self, views: Sequence[Tensor], labels_B: Tensor | None) -> Output:
        num_views, num_global = len(views), len(global_views(views, self.settings.global_views))
        features_ND = self.encode(views)
        projected_ND = self.projector(features_ND)
        # In float32 also under autocast, as temperatures are low.
        with torch.autocast(features_ND.device.type, enabled=False):
            c_KD = self.prototypes.directions_KD
            z_ND = F.normalize(projected_ND.to(c_KD.dtype), dim=1)
            scores_VBK = (z_ND @ c_KD.T).unflatten(0, (num_views, -1))
            z_TBD = z_ND.detach().unflatten(0, (num_views, -1))[:num_global]
            assignments_TBK = self._assign(z_TBD, c_KD)
        loss = swapped_prediction_loss(scores_VBK, assignments_TBK, temperature=self.settings.temperature)
        return Output(loss=loss, features_ND=features_ND.detach(), state={"z_TBD": z_TBD})

    @torch.no_grad()
    def after_step(self, output: Output) -> None:
        self.frozen.put_back(self.prototypes.weight, self.epoch)
        if self.queues:
            for view, z_BD in enumerate(output.state["z_TBD"]):
                self._queue(view).push(z_BD)

    @torch.no_grad()
    def _assign(self, z_TBD: Tensor, c_KD: Tensor) -> Tensor:
        """Of each view's rows, evened out over those of all processes and, when its time has come, the view's queue."""
        parts = [distributed.gather(z_TBD.transpose(0, 1)).transpose(0, 1)]
        weights = [torch.ones_like(parts[0][..., 0])]
        if self.queues:
            queues = [self._queue(view) for view in range(len(z_TBD))]
            # Always along, and of no weight before its time: so the step is the same one throughout.
            is_full_T = torch.stack([queue.is_full for queue in queues])
            in_use_T1 = ((self.epoch >= self.settings.queue_epoch) & is_full_T).unsqueeze(1)
            weights.append(in_use_T1.expand(-1, self.settings.queue_size))
            parts.append(torch.stack([queue.values_KD for queue in queues]))
        knobs, num = self.settings, z_TBD.shape[1]
        start = distributed.rank() * num
        return sinkhorn_of_cosines(
            torch.cat(parts, dim=1),
            c_KD,
            torch.cat(weights, dim=1),
            wanted=slice(start, start + num),
            epsilon=knobs.epsilon,
            num_iterations=knobs.sinkhorn_iterations,
        )

    def _queue(self, view: int) -> Queue:
        queue = self.queues[view]
        assert isinstance(queue, Queue)
        return queue
