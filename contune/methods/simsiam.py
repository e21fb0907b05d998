"""SimSiam: simple Siamese representation learning (Chen and He 2021).

Shapes: B images, V views of each, N = V · B rows, D embedding size.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from contune.methods.base import Method, Output, WithoutLabels, ordered_pairs, unit_rows
from contune.models.heads import mlp
from contune.settings import ranged


class SimSiam(Method):
    """A predictor maps one view's embedding to another's, which takes no gradient. No momentum copy, no negatives."""

    @dataclass(kw_only=True)
    class Settings(WithoutLabels):
        predictor_hidden: int = ranged(512, low=1)
        """Size of the predictor's bottleneck, a quarter of the embedding's in the paper."""

    settings: Settings
    constant_rate = ("predictor.",)  # it "should adapt to the latest representations"

    def __init__(self, encoder: nn.Module, num_features: int, num_classes: int, settings: Settings) -> None:
        super().__init__(encoder, num_features, num_classes, settings)
        hidden, dim = settings.projector_hidden, settings.projector_dim
        self.projector = mlp([num_features, hidden, hidden, dim], last_norm=True)
        self.predictor = mlp([dim, settings.predictor_hidden, dim])

    def forward(self, views: Sequence[Tensor], labels_B: Tensor | None) -> Output:
        features_ND = self.encode(views)
        z_ND = self.projector(features_ND)
        p_VBD = self.predictor(z_ND).unflatten(0, (len(views), -1))
        z_VBD = z_ND.detach().unflatten(0, (len(views), -1))
        loss = torch.stack([negative_cosine_loss(p_VBD[i], z_VBD[j]) for i, j in ordered_pairs(views)]).mean()
        return Output(loss=loss, features_ND=features_ND.detach())


def negative_cosine_loss(predictions_ND: Tensor, targets_ND: Tensor) -> Tensor:
    """D(p, z), equation 1, averaged over the batch: -1 where every prediction points to its target, 1 at most.

        for each row i:
            loss_i = -⟨p_i, z_i⟩ / (|p_i| |z_i|)

    The caller detaches the targets. Without the stop-gradient all embeddings collapse to one point.
    """
    with torch.autocast(predictions_ND.device.type, enabled=False):
        p_ND, z_ND = unit_rows(predictions_ND), unit_rows(targets_ND)
        return -(p_ND * z_ND).sum(dim=1).mean()
