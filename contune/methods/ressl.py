"""Relational self-supervised learning (Zheng et al. 2021)."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from contune.losses import relation_loss
from contune.methods.base import Method, Output, WithoutLabels, check_several
from contune.models.ema import cosine_momentum, follow, follower
from contune.models.heads import mlp
from contune.models.queue import Queue
from contune.settings import ranged


class ReSSL(Method):
    """Strong views, the student's, have the similarities to earlier images that a weak view has for the teacher.

    The last view is the weak one (`augment.per_view=simaugment; crop-flip`), the others are strong. Features of the
    weak view in the output are the teacher's: the student does not see it.
    """

    @dataclass(kw_only=True)
    class Settings(WithoutLabels):
        temperature: float = ranged(0.1, above=0.0)
        teacher_temperature: float = ranged(0.04, above=0.0)
        projector_hidden: int = ranged(4096, low=1)
        projector_dim: int = ranged(256, low=1)
        queue_size: int = ranged(65536, low=1)
        """Weak views of earlier images that similarities are taken to."""
        momentum: float = ranged(0.99, low=0.0, high=1.0)
        """How much the teacher keeps of itself in the first step; a cosine from here to the last one's."""
        last_momentum: float = ranged(1.0, low=0.0, high=1.0)

    settings: Settings

    def __init__(self, encoder: nn.Module, num_features: int, num_classes: int, settings: Settings) -> None:
        super().__init__(encoder, num_features, num_classes, settings)
        self.projector = mlp([num_features, settings.projector_hidden, settings.projector_dim], norm=False)
        self.teacher = follower(nn.ModuleList([self.encoder, self.projector]))
        self.queue = Queue(settings.queue_size, settings.projector_dim)

    def forward(self, views: Sequence[Tensor], labels_B: Tensor | None) -> Output:
        check_several(views)
        *strong, weak = views
        features_ND = self.encode(strong)
        teacher_features_BD, k_BD = self._teach(weak)
        q_VBD = self.projector(features_ND).unflatten(0, (len(strong), -1))
        losses = [self._relation_loss(q_BD, k_BD) for q_BD in q_VBD]
        return Output(
            loss=torch.stack(losses).mean(),
            features_ND=torch.cat([features_ND.detach(), teacher_features_BD]),
            state={"k_BD": k_BD},
        )

    def after_step(self, output: Output) -> None:
        self.queue.push(output.state["k_BD"])
        momentum = cosine_momentum(self.share, self.settings.momentum, self.settings.last_momentum)
        follow(self.teacher, nn.ModuleList([self.encoder, self.projector]), momentum)

    @torch.no_grad()
    def _teach(self, weak_BCHW: Tensor) -> tuple[Tensor, Tensor]:
        """The teacher's features and embeddings of the weak view."""
        encoder, projector = self.teacher.children()
        features_BD = encoder(weak_BCHW)
        return features_BD, F.normalize(projector(features_BD).float(), dim=1)

    def _relation_loss(self, q_BD: Tensor, k_BD: Tensor) -> Tensor:
        return relation_loss(
            q_BD,
            k_BD,
            self.queue.values_KD,
            temperature=self.settings.temperature,
            key_temperature=self.settings.teacher_temperature,
        )
