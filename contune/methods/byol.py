"""Bootstrap Your Own Latent (Grill et al. 2020)."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from contune.losses import regression_loss
from contune.methods.base import Method, Output, WithoutLabels, encoded, ordered_pairs
from contune.models.ema import cosine_momentum, follow, follower
from contune.models.heads import mlp
from contune.settings import ranged


class BYOL(Method):
    """The online network predicts from one view what a slow copy of itself, the target, makes of another.

    The paper adds the losses of the two directions; this is twice the mean over directions, the same for two views and
    of the same size for more.
    """

    @dataclass(kw_only=True)
    class Settings(WithoutLabels):
        projector_hidden: int = ranged(4096, low=1)
        projector_dim: int = ranged(256, low=1)
        predictor_hidden: int = ranged(4096, low=1)
        momentum: float = ranged(0.99, low=0.0, high=1.0)
        """How much the target keeps of itself in the first step, τ; a cosine from here to the last one's."""
        last_momentum: float = ranged(1.0, low=0.0, high=1.0)

    settings: Settings

    def __init__(self, encoder: nn.Module, num_features: int, num_classes: int, settings: Settings) -> None:
        super().__init__(encoder, num_features, num_classes, settings)
        dim = settings.projector_dim
        self.projector = mlp([num_features, settings.projector_hidden, dim])
        self.predictor = mlp([dim, settings.predictor_hidden, dim])
        self.target = follower(nn.ModuleList([self.encoder, self.projector]))

    def forward(self, views: Sequence[Tensor], labels_B: Tensor | None) -> Output:
        pairs = ordered_pairs(views)
        features_ND = self.encode(views)
        q_VBD = self.predictor(self.projector(features_ND)).unflatten(0, (len(views), -1))
        z_VBD = self._targets(views).unflatten(0, (len(views), -1))
        loss = 2 * torch.stack([regression_loss(q_VBD[i], z_VBD[j]) for i, j in pairs]).mean()
        return Output(loss=loss, features_ND=features_ND.detach())

    def after_step(self, output: Output) -> None:
        momentum = cosine_momentum(self.share, self.settings.momentum, self.settings.last_momentum)
        follow(self.target, nn.ModuleList([self.encoder, self.projector]), momentum)

    @torch.no_grad()
    def _targets(self, views: Sequence[Tensor]) -> Tensor:
        encoder, projector = self.target.children()
        z_ND: Tensor = projector(encoded(encoder, views))
        return z_ND
