"""The method contract: `forward` turns the views of a batch into a loss, `after_step` updates what is not trained.

A method knows nothing about optimizers, schedules, logging or ranks.

Shapes: B images of this process, V views of each, N = V · B rows of the stacked views, D features.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby, permutations
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from contune import distributed
from contune.errors import UserError
from contune.kernels import normalized
from contune.models.heads import ema_update
from contune.settings import ranged


@dataclass
class Output:
    """The result of one forward pass."""

    loss: Tensor
    features_ND: Tensor
    """The encoder's features of all stacked views, detached: view 1 of the batch, then view 2, …"""
    metrics: dict[str, Tensor] = field(default_factory=dict)
    """Scalars to log, still on the device."""
    state: dict[str, Tensor] = field(default_factory=dict)
    """Detached tensors that `after_step` needs. A compiled forward pass cannot store them on the method."""


class Method(nn.Module):
    """The base of all methods. The fields of its `Settings` are the `method.*` settings of the command line."""

    @dataclass(kw_only=True)
    class Settings:
        """The settings of a method, with their defaults."""

        needs_labels = True
        """Whether training with these settings needs labels."""

    settings: Settings
    epoch: Tensor
    """Epochs completed, with fractions. It lives on the device, so that a captured CUDA graph sees it change."""
    share: Tensor
    """Share of the training completed, 0 to 1, also on the device."""
    classifier: nn.Linear | None
    """Features to class scores, in a method that trains a classifier with the encoder."""
    micro_batch: int = 0
    """Views that go through an encoder at a time, for batches too large for memory; 0: all of them."""
    multilabel: bool = False
    """Whether an image has several labels: then each class is a question of its own."""
    class_weights_K: Tensor | None
    """How much a row of each class counts in the loss, for imbalanced classes; None: all the same."""

    constant_rate: ClassVar[tuple[str, ...]] = ()
    """Parameters whose names begin so keep the rate optim.lr instead of following the schedule."""

    def __init__(self, encoder: nn.Module, num_features: int, num_classes: int, settings: Settings) -> None:
        super().__init__()
        self.encoder = encoder
        self.num_features = num_features
        self.settings = settings
        self.classifier = None
        self.register_buffer("epoch", torch.zeros(()), persistent=False)
        self.register_buffer("share", torch.zeros(()), persistent=False)
        self.register_buffer("class_weights_K", None, persistent=False)

    def forward(self, views: Sequence[Tensor], labels_B: Tensor | None) -> Output:
        """views: one (B, C, H, W) batch per view; labels_B: (B,) integers, a (B, K) matrix, or None without labels."""
        raise NotImplementedError

    def after_step(self, output: Output) -> None:
        """Called after each optimizer step with the output of `forward`, to update a momentum encoder or a queue."""

    def set_time(self, epoch: float, epochs: int) -> None:
        """Called before each step: `epoch` of `epochs` epochs are completed."""
        self.epoch.fill_(epoch)
        self.share.fill_(epoch / max(epochs, 1))

    def encode(self, views: Sequence[Tensor], encoder: nn.Module | None = None) -> Tensor:
        """Features of all views, stacked, from the trained encoder or another.

        Neighboring views of one size pass together, so batch-norm sees them together.
        """
        encoder = self.encoder if encoder is None else encoder
        if self.micro_batch:
            return torch.cat([encode_in_chunks(encoder, view, micro_batch=self.micro_batch) for view in views])
        parts = [encoder(torch.cat(list(group))) for _, group in groupby(views, key=lambda view: view.shape[-2:])]
        return parts[0] if len(parts) == 1 else torch.cat(parts)


@dataclass(kw_only=True)
class WithoutLabels(Method.Settings):
    """The settings of a method that learns from images alone."""

    needs_labels = False
    projector_hidden: int = ranged(2048, low=1)
    """Size of the projector's hidden layers."""
    projector_dim: int = ranged(2048, low=1)
    """Size of the embedding that the loss sees."""


class MomentumMethod(Method):
    """A method with slow copies of its networks, which follow them and take no gradient."""

    @dataclass(kw_only=True)
    class Settings(WithoutLabels):
        projector_hidden: int = ranged(4096, low=1)
        projector_dim: int = ranged(256, low=1)
        momentum: float = ranged(0.99, low=0.0, high=1.0)
        """Momentum of the slow copies in the first step. It follows a cosine to last_momentum."""
        last_momentum: float = ranged(1.0, low=0.0, high=1.0)
        """Momentum of the slow copies in the last step."""

    settings: Settings

    def follow(self, copies: nn.Module, *leaders: nn.Module) -> None:
        """Move the copies towards what they copy."""
        first, last = self.settings.momentum, self.settings.last_momentum
        momentum = last - (last - first) * (1 + torch.cos(torch.pi * self.share)) / 2
        ema_update(copies, nn.ModuleList(leaders), momentum)


def encode_in_chunks(encoder: nn.Module, x: Tensor, *, micro_batch: int) -> Tensor:
    """`encoder(x)` with the activations of at most `micro_batch` rows in memory, for batches that would not fit.

        z = contune.encode_in_chunks(encoder, x, micro_batch=256)
        contune.tcl_loss(z, labels).backward()

    Gradient caching (Gao et al. 2021): each chunk is encoded now without keeping its activations, and once more in the
    backward pass, which costs a second forward pass. The loss sees all embeddings at once.

    Exact for encoders whose rows do not depend on each other. Batch norm takes its statistics from a chunk instead of
    the batch, and updates its running statistics only the first time. Dropout repeats its random numbers. Works under
    autocast; with DistributedDataParallel call it inside the module that is wrapped.
    """
    chunks = x.tensor_split(max(1, -(-len(x) // micro_batch)))  # alike: batch norm refuses a last one of a single row
    if len(chunks) == 1 or not torch.is_grad_enabled():
        return torch.cat([encoder(chunk) for chunk in chunks])

    again = partial(checkpoint, use_reentrant=False, context_fn=lambda: (nullcontext(), unchanged_buffers(encoder)))
    return torch.cat([again(encoder, chunk) for chunk in chunks])


@contextmanager
def unchanged_buffers(module: nn.Module) -> Iterator[None]:
    """Give all buffers their values back at the end."""
    before = [buffer.clone() for buffer in module.buffers()]
    try:
        yield
    finally:
        for buffer, value in zip(module.buffers(), before, strict=True):
            buffer.data.copy_(value)  # of `data`, as autograd would call a buffer that it has saved damaged


def check_views(views: Sequence[Tensor], at_least: int = 2) -> None:
    if len(views) < at_least:
        raise UserError(f"this method compares views of an image and got {len(views)}; set augment.views={at_least}")


def ordered_pairs(views: Sequence[Tensor]) -> list[tuple[int, int]]:
    """The indices of all pairs of different views, in both directions."""
    check_views(views)
    return list(permutations(range(len(views)), 2))


def labels_of_views(labels_B: Tensor | None, views: Sequence[Tensor]) -> Tensor:
    """One label, or one row of a label matrix, for each row of the stacked views."""
    if labels_B is None:
        raise UserError("this method needs labels and the batch has none. tcl and simclr can train without labels.")
    return labels_B.repeat(len(views), *[1] * (labels_B.dim() - 1))


def classification_loss(
    logits_NK: Tensor,
    labels_N: Tensor,
    *,
    multilabel: bool = False,
    label_smoothing: float = 0.0,
    class_weights_K: Tensor | None = None,
) -> Tensor:
    """Cross-entropy with (N,) labels or (N, K) rows of probabilities, averaged over rows.

    multilabel: binary cross-entropy with an (N, K) matrix instead, summed over classes.
    class_weights_K: how much a row of each class counts. The average over processes is then the weighted mean over all
        rows of the global batch.
    """
    if class_weights_K is not None:
        loss_N = F.cross_entropy(logits_NK, labels_N, label_smoothing=label_smoothing, reduction="none")
        weight_N, _ = row_weights(labels_N, class_weights_K)
        return (weight_N * loss_N).sum() / distributed.mean(weight_N.sum())
    if not multilabel:
        return F.cross_entropy(logits_NK, labels_N, label_smoothing=label_smoothing)
    targets_NK = labels_N + label_smoothing * (0.5 - labels_N)
    return F.binary_cross_entropy_with_logits(logits_NK, targets_NK, reduction="sum") / len(logits_NK)


def row_weights(labels_N: Tensor, class_weights_K: Tensor) -> tuple[Tensor, Tensor]:
    """The weight of each row, and whether another row of the global batch shares a label with it.

    labels_N: (N,) integers, or (N, K) rows of shares such as mixed images have; their weight is the mean by share.
    """
    labels_NK = F.one_hot(labels_N, len(class_weights_K)) if labels_N.dim() == 1 else labels_N
    others_NK = distributed.total(labels_NK.sum(dim=0)) - labels_NK
    # Sums of products: autocast would round a matrix product.
    return (labels_NK * class_weights_K).sum(dim=1), (labels_NK * others_NK).sum(dim=1) > 0


def top1(logits_NK: Tensor, labels_N: Tensor) -> Tensor:
    """The share of rows whose highest logit is that of their label; of a label matrix, how much it counts there."""
    guess_N = logits_NK.argmax(dim=1)
    hits_N = guess_N == labels_N if labels_N.dim() == 1 else labels_N.gather(1, guess_N[:, None])
    return hits_N.float().mean()


def at_least_float32(z: Tensor) -> Tensor:
    return z if z.dtype == torch.float64 else z.float()


def unit_rows(z_ND: Tensor) -> Tensor:
    """Rows L2-normalized in float32 or better. A row without a direction becomes 0, and so does its gradient."""
    return normalized(z_ND, True)[0]
