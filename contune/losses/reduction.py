"""From one loss per anchor to what the caller asked for, with one rule for anchors without a positive."""

import warnings
from typing import NamedTuple

import torch
from torch import Tensor

from contune.errors import unknown

REDUCTIONS = ("mean", "sum", "none")
_sizes_seen: set[int] = set()


class Need(NamedTuple):
    """What an anchor must have for a loss to use it, and how to give batches that have it."""

    what: str
    way: str


POSITIVE = Need("a positive", "give two or more views of each sample, or batches with several samples of a class")
POSITIVE_AND_NEGATIVE = Need(
    "both a positive and a negative", "give batches of two or more classes with several samples, or views, of each"
)


def reduce_anchors(loss_N: Tensor, usable_N: Tensor, reduction: str, need: Need = POSITIVE) -> Tensor:
    """`mean` over the anchors that have what they need, `sum`, or `none`: one value per anchor.

    Anchors that cannot be used hold an exact 0 in `loss_N`; a batch of nothing else gives a 0 that still
    backpropagates (to zero gradients), and a warning, once.
    """
    if reduction not in REDUCTIONS:
        raise unknown("reduction", reduction, REDUCTIONS)
    warn_if_nothing_usable(usable_N, need)
    if reduction == "none":
        return loss_N
    if reduction == "sum":
        return loss_N.sum()
    return loss_N.sum() / usable_N.sum().clamp(min=1)


def warn_if_nothing_usable(total_N: Tensor, need: Need = POSITIVE) -> None:
    """total_N: for each anchor something that is 0 where it lacks what it needs."""
    if torch.compiler.is_compiling():
        return
    num = total_N.shape[0]
    if total_N.device.type != "cpu":
        # Reading the answer makes the host wait for the device: once for each batch size is enough to notice.
        if num in _sizes_seen or torch.cuda.is_current_stream_capturing():
            return
        _sizes_seen.add(num)
    if not total_N.any():
        warnings.warn(
            f"no anchor in this batch of {num} has {need.what}, so the loss is 0 and teaches nothing; {need.way}",
            stacklevel=2,
        )
