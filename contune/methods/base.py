"""What a method is: from the views of a batch to a loss, and nothing about optimizers, logging or ranks."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby, permutations

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
    state: dict[str, Tensor] = field(default_factory=dict)
    """What is wanted of this forward pass after the step, detached: a compiled one cannot leave it on the method."""


@dataclass(frozen=True)
class ParameterGroup:
    """Parameters with a rate of their own."""

    parameters: list[nn.Parameter]
    constant: bool = False
    """Whether their rate stays at optim.lr, where that of the others follows the schedule."""


@dataclass(frozen=True)
class Guess:
    """Where a method may be stuck: predictions that are the same for every image."""

    loss: float
    """What those cost."""
    advice: str
    """Settings that get it away from there."""


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
    epoch: Tensor
    """How many epochs are done, with fractions: a number on the device, so that a recorded step sees it change."""
    share: Tensor
    """How much of the training is done, 0 to 1, likewise."""
    classifier: nn.Module | None
    """From features to class scores, in a method that trains one with the encoder."""

    def __init__(self, encoder: nn.Module, num_features: int, num_classes: int, settings: Settings) -> None:
        super().__init__()
        self.encoder = encoder
        self.num_features = num_features
        self.settings = settings
        self.classifier = None
        self.register_buffer("epoch", torch.zeros(()), persistent=False)
        self.register_buffer("share", torch.zeros(()), persistent=False)

    def forward(self, views: Sequence[Tensor], labels_B: Tensor | None) -> Output:
        """views: one (B, C, H, W) batch a view; labels_B: (B,) integers, or None without labels."""
        raise AssertionError(f"{type(self).__name__} must define forward")

    def after_step(self, output: Output) -> None:
        """Called after each optimizer step with what forward gave, for a momentum encoder or a queue."""

    def parameter_groups(self) -> list[ParameterGroup]:
        """All that is trained; more than one group where some of it has a rate of its own."""
        return [ParameterGroup([parameter for parameter in self.parameters() if parameter.requires_grad])]

    @property
    def guess(self) -> Guess | None:
        """Of a method that predicts prototypes; None where no such loss is known."""
        return None

    def set_time(self, epoch: float, epochs: int) -> None:
        """Called before each step: `epoch` of `epochs` epochs are done."""
        self.epoch.fill_(epoch)
        self.share.fill_(epoch / max(epochs, 1))

    def encode(self, views: Sequence[Tensor]) -> Tensor:
        """All views of a size through the encoder at once, so that batch-norm sees them together."""
        return encoded(self.encoder, views)


@dataclass(kw_only=True)
class WithoutLabels(Method.Settings):
    """Those of a method that learns from images alone."""

    @property
    def needs_labels(self) -> bool:
        return False


def encoded(encoder: nn.Module, views: Sequence[Tensor]) -> Tensor:
    """Features of all views, stacked; neighbouring views of the same size go through together."""
    parts = [encoder(torch.cat(list(group))) for _, group in groupby(views, key=lambda view: view.shape[-2:])]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def ordered_pairs(views: Sequence[Tensor]) -> list[tuple[int, int]]:
    """The numbers of all pairs of different views, in both directions."""
    check_several(views)
    return list(permutations(range(len(views)), 2))


def check_several(views: Sequence[Tensor]) -> None:
    if len(views) < 2:
        raise UserError(
            f"this method compares views of an image with each other and got {len(views)}; set augment.views=2 or more"
        )


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
