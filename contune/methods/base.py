"""What a method is: from the views of a batch to a loss, and nothing about optimizers, logging or ranks."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from contune import distributed
from contune.errors import UserError


@dataclass
class Output:
    """What one forward pass of a method gives."""

    loss: Tensor
    features_ND: Tensor
    """The encoder's features of all views stacked, detached: view 1 of the batch, view 2, …"""
    metrics: dict[str, Tensor] = field(default_factory=dict)
    """Scalars worth a curve, still on the device."""


class Method(nn.Module):
    """The base of all methods. The fields of its `Settings` are what `method.*` sets on the command line."""

    @dataclass(kw_only=True)
    class Settings:
        """The knobs of a method, with their defaults."""

        @property
        def needs_labels(self) -> bool:
            """Whether training with these settings asks for labels."""
            return True

    settings: Settings
    classifier: nn.Module | None
    """From features to class scores, in a method that trains one with the encoder."""

    def __init__(self, encoder: nn.Module, num_features: int, num_classes: int, settings: Settings) -> None:
        super().__init__()
        self.encoder = encoder
        self.num_features = num_features
        self.settings = settings
        self.classifier = None

    def forward(self, views: Sequence[Tensor], labels_B: Tensor | None) -> Output:
        """views: one (B, C, H, W) batch a view; labels_B: (B,) integers, or None without labels."""
        raise AssertionError(f"{type(self).__name__} must define forward")

    def after_step(self) -> None:
        """Called after each optimizer step, for a momentum encoder or a queue."""

    def encode(self, views: Sequence[Tensor]) -> Tensor:
        """All views through the encoder at once, so that batch-norm sees them together."""
        features_ND: Tensor = self.encoder(torch.cat(list(views)))
        return features_ND


def labels_of_views(labels_B: Tensor | None, views: Sequence[Tensor]) -> Tensor:
    """One label for each row of the stacked views."""
    if labels_B is None:
        raise UserError("this method learns from labels and the batch has none; tcl and simclr can do without")
    return labels_B.repeat(len(views))


def ids_of_views(views: Sequence[Tensor]) -> Tensor:
    """For each row of the stacked views, an integer that only the views of the same sample share."""
    num = views[0].shape[0]
    ids_B = torch.arange(num, device=views[0].device) + distributed.rank() * num
    return ids_B.repeat(len(views))
