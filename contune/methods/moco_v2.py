"""MoCo v2: Momentum Contrast (He et al. 2020, Chen et al. 2020), in the symmetric form of solo-learn.

Shapes: B images, V views of each, N = V · B rows, D embedding size, K keys in a queue.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from contune.methods.base import MomentumMethod, Output, ordered_pairs, unit_rows
from contune.models.heads import Queue, ema_copy, mlp
from contune.settings import ranged

NUM_QUEUES = 2


class MoCoV2(MomentumMethod):
    """Each view's query finds the key of another view of its image among keys of earlier images, kept in a queue.

    The paper takes queries from one view and keys from the other. Here each view gives both, and the first two views
    have one queue each: a query meets keys of the view that its positive comes from. Further views share these queues
    in turn. The paper shuffles images over GPUs so that batch-norm leaks nothing; our batch-norm sees the whole batch.
    """

    @dataclass(kw_only=True)
    class Settings(MomentumMethod.Settings):
        temperature: float = ranged(0.2, above=0.0)
        """Similarities are divided by it. Lower values give hard pairs more weight."""
        projector_hidden: int = ranged(2048, low=1)
        queue_size: int = ranged(32768, low=1)
        """Keys in each of the two queues."""
        momentum: float = ranged(0.99, low=0.0, high=1.0)
        """Momentum of the key networks in the first step. It follows a cosine to last_momentum.

        With 0.9 old keys differ from new ones whatever they show, and telling their age lowers the loss.
        """
        last_momentum: float = ranged(0.999, low=0.0, high=1.0)

    settings: Settings
    queues: Any
    """A ModuleList of one `Queue` for each of the first two views."""

    def __init__(self, encoder: nn.Module, num_features: int, num_classes: int, settings: Settings) -> None:
        super().__init__(encoder, num_features, num_classes, settings)
        self.projector = mlp([num_features, settings.projector_hidden, settings.projector_dim], norm=False)
        self.key_networks = ema_copy(nn.ModuleList([self.encoder, self.projector]))
        self.queues = nn.ModuleList(Queue(settings.queue_size, settings.projector_dim) for _ in range(NUM_QUEUES))

    def forward(self, views: Sequence[Tensor], labels_B: Tensor | None) -> Output:
        pairs, temperature = ordered_pairs(views), self.settings.temperature
        features_ND = self.encode(views)
        q_VBD = self.projector(features_ND).unflatten(0, (len(views), -1))
        with torch.no_grad():
            key_encoder, key_projector = self.key_networks.children()
            k_ND = F.normalize(key_projector(self.encode(views, key_encoder)).float(), dim=1)
            k_VBD = k_ND.unflatten(0, (len(views), -1))
        losses = [
            infonce_loss(q_VBD[i], k_VBD[j], self.queues[j % NUM_QUEUES].values_KD, temperature=temperature)
            for i, j in pairs
        ]
        return Output(loss=torch.stack(losses).mean(), features_ND=features_ND.detach(), state={"k_VBD": k_VBD})

    def after_step(self, output: Output) -> None:
        for view, k_BD in enumerate(output.state["k_VBD"]):
            self.queues[view % NUM_QUEUES].push(k_BD)
        self.follow(self.key_networks, self.encoder, self.projector)


def infonce_loss(queries_BD: Tensor, keys_BD: Tensor, queue_KD: Tensor, *, temperature: float = 0.2) -> Tensor:
    """Equation 1 of He et al., averaged over the batch: one positive against the keys of a queue.

        for each query i:
            D = exp(q_i·k_i / τ) + Σ_n exp(q_i·queue_n / τ)
            loss_i = -log(exp(q_i·k_i / τ) / D)

    Unlike `ntxent_loss` with candidates, the other keys of the batch are not negatives. queue_KD holds unit vectors.
    Computed as log(1 + exp(log Σ_n exp(q_i·queue_n / τ) - q_i·k_i / τ)).
    """
    with torch.autocast(queries_BD.device.type, enabled=False):
        q_BD, k_BD = unit_rows(queries_BD), unit_rows(keys_BD)
        positive_B = (q_BD * k_BD).sum(dim=1) / temperature
        negatives_B = (q_BD / temperature @ queue_KD.to(q_BD.dtype).T).logsumexp(dim=1)
        return F.softplus(negatives_B - positive_B).mean()
