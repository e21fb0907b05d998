"""Positives: how many an anchor meets in a batch, and the loss that an untrained network then has."""

import math
from collections.abc import Iterator

from torch import Tensor

from contune.config import Config
from contune.console import Finding, advice, fine
from contune.errors import UserError
from contune.methods.tcl import TCL
from contune.train.order import balanced_shares

FEW_IMAGES = 0.5
"""Others of its class that an anchor meets on average: six of ten then meet none."""


def about_positives(config: Config, labels_N: Tensor | None) -> Iterator[Finding]:
    if config.method.name == "cross-entropy":
        return
    expected, views = expected_positives(config, labels_N), config.augment.views
    by_label = has_positives_by_label(config)
    if expected == 0:
        where = "with one image of each class in a batch" if by_label else "without labels"
        raise UserError(f"an anchor has no positives: {where} it takes augment.views=2 or more")
    alike = denominator_of_equals(config, expected)
    if config.method.name in ("tcl", "supcon", "simclr") and alike > 1:
        yield fine(
            f"an untrained loss is about ln {alike:.0f} = {math.log(alike):.2f}; one that stays there has not learnt"
        )
    yield fine(f"positives: {expected:.1f} for each anchor on average")
    are_there = labels_N is not None and int(labels_N.bincount().max()) > 1
    if by_label and are_there and (expected + 1) / views - 1 < FEW_IMAGES:
        yield advice(
            "few anchors meet another image of their class; raise optim.batch_images, or set data.sampler=balanced"
        )


def expected_positives(config: Config, labels_N: Tensor | None) -> float:
    """Views of the same image, and of other images of its class where the method goes by labels."""
    views, batch = config.augment.views, config.optim.batch_images
    if not config.method.settings.needs_labels or labels_N is None:
        return views - 1
    if config.data.sampler == "balanced":
        classes, images, extra = balanced_shares(config, labels_N)
        of_own_class = (classes - extra) * images**2 + extra * (images + 1) ** 2
        return views * of_own_class / batch - 1
    counts_K, num = labels_N.bincount().double(), len(labels_N)
    share_of_pairs = (counts_K * (counts_K - 1)).sum().item() / max(1, num * (num - 1))
    return views - 1 + views * (batch - 1) * share_of_pairs


def denominator_of_equals(config: Config, positives: float) -> float:
    """Of the loss, in units of exp(s / τ), where every pair has the same similarity s; k1's term is left out."""
    settings = config.method.settings
    k2 = settings.k2 if isinstance(settings, TCL.Settings) else 1.0
    return positives + k2 * (config.optim.batch_images * config.augment.views - 1 - positives)


def has_positives_by_label(config: Config) -> bool:
    return config.method.settings.needs_labels and config.method.name != "cross-entropy"
