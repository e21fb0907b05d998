"""The methods that differ only in their pair loss: encode, project, compare every pair of the global batch."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from contune.kernels.problem import Knobs
from contune.methods.base import Method, Output, ids_of_views, labels_of_views
from contune.models.heads import projector
from contune.settings import ranged


class PairwiseMethod(Method):
    """Encoder, projector, and a loss on embeddings that are grouped by label or, without labels, by sample."""

    @dataclass(kw_only=True)
    class Settings(Method.Settings):
        projector_hidden: int | None = ranged(None, low=1)
        """Size of the projector's hidden layer; none: the encoder's number of features."""
        projector_dim: int = ranged(128, low=1)
        """Size of the embedding that the loss sees."""

    settings: Settings

    def __init__(self, encoder: nn.Module, num_features: int, num_classes: int, settings: Settings) -> None:
        super().__init__(encoder, num_features, num_classes, settings)
        self.projector = projector(num_features, hidden=settings.projector_hidden, dim=settings.projector_dim)

    @property
    def knobs(self) -> Knobs | None:
        """Temperature, k1 and k2 where the loss is TCL or one that it contains; None where it is another."""
        return None

    def pair_loss(self, z_ND: Tensor, groups_N: Tensor) -> Tensor:
        """The loss of the global batch, of which these are this process's rows; same group, positives."""
        raise AssertionError(f"{type(self).__name__} must define pair_loss")

    def forward(self, views: Sequence[Tensor], labels_B: Tensor | None) -> Output:
        features_ND = self.encode(views)
        by_label = self.settings.needs_labels
        groups_N = labels_of_views(labels_B, views) if by_label else ids_of_views(views)
        z_ND = self.projector(features_ND)
        compared = {"z_ND": z_ND.detach(), "groups_N": groups_N}
        return Output(loss=self.pair_loss(z_ND, groups_N), features_ND=features_ND.detach(), state=compared)
