"""Holding images out of a training set.

Shapes: N images, K classes.
"""

import numpy as np
import torch
from torch import Tensor

from contune.data.seeding import mixed_generator
from contune.errors import UserError


def holdout(labels: Tensor | None, num: int, fraction: float, seed: int) -> tuple[Tensor, Tensor]:
    """Positions to keep and positions held out, both ascending, the same for the same seed.

    Stratified: each class gives its share to the nearest whole image, and the classes with the largest
    remainders round up until `fraction` of the whole is held. A class never gives its last image, so a
    class with a single one stays out of the held part.
    """
    if not 0 <= fraction < 1:
        raise UserError(f"a held-out fraction of {fraction} is not possible; it is at least 0 and below 1")
    generator = mixed_generator(seed, num)
    labels_N = torch.zeros(num, dtype=torch.int64) if labels is None else labels
    _, inverse, counts = np.unique(labels_N.numpy(), return_inverse=True, return_counts=True)
    class_N, counts_K = torch.from_numpy(inverse), torch.from_numpy(counts)
    quota_K = _quotas(counts_K, fraction, generator)

    order_N = torch.randperm(num, generator=generator)
    held = torch.zeros(num, dtype=torch.bool)
    order_N = order_N[class_N[order_N].argsort(stable=True)]  # class by class, shuffled inside each
    starts_K = counts_K.cumsum(0) - counts_K
    rank_N = torch.arange(num) - starts_K.repeat_interleave(counts_K)
    held[order_N] = rank_N < quota_K.repeat_interleave(counts_K)
    return (~held).nonzero().squeeze(1), held.nonzero().squeeze(1)


def way_to_hold_out(setting: str, labels: Tensor | None, num: int, fraction: float) -> str:
    """What a person can do where `holdout` held nothing out; `setting` is what they call the fraction."""
    if not fraction:
        return f"set {setting}=0.2"
    if labels is not None and int(labels.bincount().max()) == 1:
        return "every class has a single image, which training keeps, so add images, or a split of their own"
    return f"{setting}={fraction:g} of {num} images is none, so raise it"


def _quotas(counts_K: Tensor, fraction: float, generator: torch.Generator) -> Tensor:
    share_K = counts_K.double() * fraction
    quota_K = share_K.floor().long()
    num_missing = round(float(share_K.sum())) - int(quota_K.sum())
    remainder_K = share_K - quota_K
    shuffled_K = torch.randperm(len(counts_K), generator=generator)  # equal remainders: whose turn is random
    by_remainder_K = shuffled_K[remainder_K[shuffled_K].argsort(descending=True, stable=True)]
    can_give_K = by_remainder_K[quota_K[by_remainder_K] + 1 < counts_K[by_remainder_K]]
    quota_K[can_give_K[:num_missing]] += 1
    return quota_K.minimum(counts_K - 1)
