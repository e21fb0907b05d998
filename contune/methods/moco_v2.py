"""Momentum Contrast, version 2 (Chen et al. 2020), in the symmetric form of the reference library."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from contune.losses import infonce_loss
from contune.methods.base import Method, Output, WithoutLabels, encoded, ordered_pairs
from contune.models.ema import cosine_momentum, follow, follower
from contune.models.heads import mlp
from contune.models.queue import Queue
from contune.settings import ranged

NUM_QUEUES = 2


class MoCoV2(Method):
    """Each view's query finds the key of another view of its image among those of earlier images, kept in a queue.

    The paper takes queries from one view and keys from the other; here each view gives both, and the first two have a
    queue each: a query meets keys of the view that its positive comes from. Further views join these in turn. The paper
    shuffles the images over GPUs so that batch-norm tells nothing; here its statistics are those of the whole batch.
    """

    @dataclass(kw_only=True)
    class Settings(WithoutLabels):
        temperature: float = ranged(0.2, above=0.0)
        projector_hidden: int = ranged(2048, low=1)
        projector_dim: int = ranged(256, low=1)
        queue_size: int = ranged(32768, low=1)
        """Keys in each of the two queues."""
        momentum: float = ranged(0.99, low=0.0, high=1.0)
        """How much the key networks keep of themselves in the first step; a cosine from here to the last one's.

        With 0.9 old keys differ from new ones whatever they show, and telling their age lowers the loss.
        """
        last_momentum: float = ranged(0.999, low=0.0, high=1.0)

    settings: Settings

    def __init__(self, encoder: nn.Module, num_features: int, num_classes: int, settings: Settings) -> None:
        super().__init__(encoder, num_features, num_classes, settings)
        self.projector = mlp([num_features, settings.projector_hidden, settings.projector_dim], norm=False)
        self.key_networks = follower(nn.ModuleList([self.encoder, self.projector]))
        self.queues = nn.ModuleList(Queue(settings.queue_size, settings.projector_dim) for _ in range(NUM_QUEUES))

    def forward(self, views: Sequence[Tensor], labels_B: Tensor | None) -> Output:
        pairs = ordered_pairs(views)
        features_ND = self.encode(views)
        q_VBD = self.projector(features_ND).unflatten(0, (len(views), -1))
        k_VBD = self._keys(views).unflatten(0, (len(views), -1))
        losses = [
            infonce_loss(q_VBD[i], k_VBD[j], self._queue(j).values_KD, temperature=self.settings.temperature)
            for i, j in pairs
        ]
        return Output(loss=torch.stack(losses).mean(), features_ND=features_ND.detach(), state={"k_VBD": k_VBD})

    def after_step(self, output: Output) -> None:
        for view, k_BD in enumerate(output.state["k_VBD"]):
            self._queue(view).push(k_BD)
        momentum = cosine_momentum(self.share, self.settings.momentum, self.settings.last_momentum)
        follow(self.key_networks, nn.ModuleList([self.encoder, self.projector]), momentum)

    @torch.no_grad()
    def _keys(self, views: Sequence[Tensor]) -> Tensor:
        encoder, projector = self.key_networks.children()
        return F.normalize(projector(encoded(encoder, views)).float(), dim=1)

    def _queue(self, view: int) -> Queue:
        queue = self.queues[view % NUM_QUEUES]
        assert isinstance(queue, Queue)
        return queue
