"""The paper's linear probe: a linear layer trained with SGD on augmented images through the frozen encoder."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from math import cos, pi

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from contune.data.augment import Augmenter
from contune.data.augment.crops import Crops, begin_with_crops, crops_of
from contune.data.loader import Loader
from contune.data.sampler import shuffled_order
from contune.data.seeding import mixed_generator, mixed_seed
from contune.eval.frozen import cast_once
from contune.train.engine import can_record
from contune.train.graph import GraphedStep, Step
from contune.train.optim import build_optimizer, set_learning_rate

Advance = Callable[[int, str], None]
PROBE_STREAM = 2**32
"""Keeps the probe's random numbers apart from those of training with the same seed."""


def train_linear(
    encoder: nn.Module,
    loader: Loader,
    augmenter: Augmenter,
    num_features: int,
    num_classes: int,
    *,
    epochs: int = 50,
    lr: float = 0.5,
    batch: int = 256,
    momentum: float = 0.9,
    weight_decay: float = 1e-4,
    seed: int = 0,
    autocast: Callable[[], AbstractContextManager[object]] = nullcontext,
    advance: Advance | None = None,
) -> nn.Linear:
    """50 epochs of SGD at 0.5 with a cosine per epoch, one augmented view of each image: appendix B.1.

    The authors' code leaves the encoder's batch-norm in training mode here, which keeps changing an encoder
    that is said to be frozen; this follows the paper's text and freezes all of it.
    """
    assert loader.labels_N is not None, "a linear probe needs labels"
    encoder = cast_once(encoder.eval(), autocast)
    device = loader.labels_N.device
    torch.manual_seed(seed)
    classifier = nn.Linear(num_features, num_classes).to(device)
    optimizer = build_optimizer(classifier, "sgd", lr=lr, momentum=momentum, weight_decay=weight_decay)
    generator = torch.Generator(device)
    batch = min(batch, len(loader))

    def step(images_BCHW: Tensor, labels_B: Tensor | None) -> dict[str, Tensor]:
        assert labels_B is not None
        (view_BCHW,) = augmenter.apply(images_BCHW, augmenter.draw(batch, generator))
        with torch.no_grad(), autocast():
            features_BD = encoder(view_BCHW)
        loss = F.cross_entropy(classifier(features_BD.float()), labels_B)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return {"loss": loss.detach()}

    run_step: Step = GraphedStep(step, generator) if can_record(device) else step
    crops = _crops(augmenter, len(loader), batch, seed, epochs) if begin_with_crops(augmenter.policies) else None
    batches = loader.batches(_indices(len(loader), batch, seed, epochs), crops)
    for epoch in range(epochs):
        set_learning_rate(optimizer, lr * (1 + cos(pi * epoch / epochs)) / 2)
        generator.manual_seed(mixed_seed(seed + PROBE_STREAM, epoch))
        for images_BCHW, labels_B in islice(batches, len(loader) // batch):
            metrics = run_step(images_BCHW, labels_B)
        if advance is not None:
            advance(epoch + 1, f"loss {metrics['loss'].item():.3f}")
    return classifier


def linear_protocol(*, epochs: int, lr: float, batch: int, policy: str) -> str:
    return (
        f"linear layer, {epochs} epochs of SGD (lr {lr:g}, momentum 0.9, weight decay 1e-4, cosine, batch {batch}), "
        f"augmented by {policy}, encoder and its batch-norm frozen; last epoch"
    )


def _indices(num: int, batch: int, seed: int, epochs: int) -> Iterator[Tensor]:
    """Full batches in an order of each epoch's own; what is left over has its turn in another epoch."""
    for epoch in range(epochs):
        order_N = shuffled_order(num, seed + PROBE_STREAM, epoch)
        yield from order_N[: num // batch * batch].split(batch)


def _crops(augmenter: Augmenter, num: int, batch: int, seed: int, epochs: int) -> Iterator[Crops]:
    """For a loader that streams: what is drawn for each batch, from the epoch's generator on the host."""
    for epoch in range(epochs):
        generator = mixed_generator(seed + PROBE_STREAM, epoch)
        for _ in range(num // batch):
            yield crops_of(augmenter.policies, augmenter.draw(batch, generator))
