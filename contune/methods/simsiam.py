"""Simple Siamese representation learning (Chen and He 2021)."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from contune.losses import negative_cosine_loss
from contune.methods.base import Method, Output, ParameterGroup, WithoutLabels, ordered_pairs
from contune.models.heads import mlp
from contune.settings import ranged


class SimSiam(Method):
    """A predictor makes of one view's embedding that of another, which gets no gradient: no copy, no negatives."""

    @dataclass(kw_only=True)
    class Settings(WithoutLabels):
        projector_hidden: int = ranged(2048, low=1)
        """Size of the projector's two hidden layers."""
        projector_dim: int = ranged(2048, low=1)
        predictor_hidden: int = ranged(512, low=1)
        """Size of the predictor's bottleneck, a quarter of the embedding's in the paper."""

    settings: Settings

    def __init__(self, encoder: nn.Module, num_features: int, num_classes: int, settings: Settings) -> None:
        super().__init__(encoder, num_features, num_classes, settings)
        hidden, dim = settings.projector_hidden, settings.projector_dim
        self.projector = mlp([num_features, hidden, hidden, dim], last_norm="plain")
        self.predictor = mlp([dim, settings.predictor_hidden, dim])

    def forward(self, views: Sequence[Tensor], labels_B: Tensor | None) -> Output:
        pairs = ordered_pairs(views)
        features_ND = self.encode(views)
        z_ND = self.projector(features_ND)
        p_VBD = self.predictor(z_ND).unflatten(0, (len(views), -1))
        z_VBD = z_ND.detach().unflatten(0, (len(views), -1))
        loss = torch.stack([negative_cosine_loss(p_VBD[i], z_VBD[j]) for i, j in pairs]).mean()
        return Output(loss=loss, features_ND=features_ND.detach())

    def parameter_groups(self) -> list[ParameterGroup]:
        """The predictor's rate is not decayed: it "should adapt to the latest representations"."""
        return [
            ParameterGroup([*self.encoder.parameters(), *self.projector.parameters()]),
            ParameterGroup(list(self.predictor.parameters()), constant=True),
        ]
