"""The methods that compare whole views: encode, project, and a loss of two views of the global batch."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import torch
from torch import Tensor, nn

from contune import distributed
from contune.methods.base import Method, Output, WithoutLabels, check_several
from contune.models.heads import mlp
from contune.settings import ranged


class ViewPairMethod(Method):
    """Encoder, projector with batch-norm, and a loss that is the mean over all pairs of views.

    None of these losses notices a shift of all embeddings, so the projector's last layer has no bias.
    """

    @dataclass(kw_only=True)
    class Settings(WithoutLabels):
        projector_hidden: int = ranged(2048, low=1)
        """Size of the projector's hidden layers."""
        projector_dim: int = ranged(2048, low=1)
        """Size of the embedding that the loss sees."""

    settings: Settings
    num_hidden = 2
    """How many hidden layers the projector has."""

    def __init__(self, encoder: nn.Module, num_features: int, num_classes: int, settings: Settings) -> None:
        super().__init__(encoder, num_features, num_classes, settings)
        hidden = [settings.projector_hidden] * self.num_hidden
        self.projector = mlp([num_features, *hidden, settings.projector_dim], bias=False)

    def view_loss(self, z1_BD: Tensor, z2_BD: Tensor) -> Tensor:
        """The loss of two views of the whole batch, whose rows belong together."""
        raise AssertionError(f"{type(self).__name__} must define view_loss")

    def forward(self, views: Sequence[Tensor], labels_B: Tensor | None) -> Output:
        check_several(views)
        features_ND = self.encode(views)
        z_BVD = self.projector(features_ND).unflatten(0, (len(views), -1)).transpose(0, 1)
        z_VBD = distributed.gather(z_BVD).unbind(dim=1)
        losses = [self.view_loss(z1_BD, z2_BD) for z1_BD, z2_BD in combinations(z_VBD, 2)]
        return Output(loss=torch.stack(losses).mean(), features_ND=features_ND.detach())
