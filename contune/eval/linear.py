"""The paper's linear probe: a linear layer trained with SGD on augmented images through the frozen encoder."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from math import cos, pi

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from contune.data.augment import Augmenter
from contune.data.loader import Loader
from contune.data.sampler import shuffled_order
from contune.data.seeding import mixed_generator

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
    encoder.eval()
    device = loader.labels_N.device
    torch.manual_seed(seed)
    classifier = nn.Linear(num_features, num_classes).to(device)
    optimizer = torch.optim.SGD(
        classifier.parameters(),
        lr=lr,
        momentum=momentum,
        weight_decay=weight_decay,
        fused=device.type == "cuda",
    )
    for epoch in range(epochs):
        optimizer.param_groups[0]["lr"] = lr * (1 + cos(pi * epoch / epochs)) / 2
        order = shuffled_order(len(loader), seed + PROBE_STREAM, epoch)
        for step, (images_BCHW, labels_B) in enumerate(loader.batches(list(order.split(batch)))):
            generator = mixed_generator(seed + PROBE_STREAM, epoch, step, device=device)
            (view_BCHW,) = augmenter.apply(images_BCHW, augmenter.draw(len(images_BCHW), generator))
            with torch.no_grad(), autocast():
                features_BD = encoder(view_BCHW)
            loss = F.cross_entropy(classifier(features_BD.float()), _required(labels_B))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if advance is not None:
            advance(epoch + 1, f"loss {loss.item():.3f}")
    return classifier


def linear_protocol(*, epochs: int, lr: float, batch: int, policy: str) -> str:
    return (
        f"linear layer, {epochs} epochs of SGD (lr {lr:g}, momentum 0.9, weight decay 1e-4, cosine, batch {batch}), "
        f"augmented by {policy}, encoder and its batch-norm frozen; last epoch"
    )


def _required(labels_B: Tensor | None) -> Tensor:
    assert labels_B is not None
    return labels_B
