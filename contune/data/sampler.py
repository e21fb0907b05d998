"""Which images in which order: pure functions of (seed, epoch).

Shapes: B batches, P classes in a batch, K images of each, X of which have one more.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from contune.data.seeding import mixed_generator
from contune.errors import UserError


def shuffled_order(num: int, seed: int, epoch: int) -> Tensor:
    """Every position once, in an order of this epoch's own."""
    return torch.randperm(num, generator=mixed_generator(seed, epoch))


def balanced_batches(
    labels: Tensor, classes_per_batch: int, images_per_class: int, seed: int, epoch: int, *, extra: int = 0
) -> Tensor:
    """Class-balanced batches for imbalanced data: positions (B, P·K + X), class after class in each row.

    A row has P different classes and K images of each; X of them, the `extra`, have one more. Over the epoch every
    class comes equally often, give or take one. A class deals its images like a deck of cards, all of them before any
    comes again, and in one row the same image comes twice only where the class has fewer than the row takes. An epoch
    has len(labels) // (P·K + X) rows.
    """
    P, K = classes_per_batch, images_per_class
    classes, counts = np.unique(labels.numpy(), return_counts=True)
    num_batches = _num_batches(len(labels), len(classes), P, K, extra)
    generator = mixed_generator(seed, epoch)
    by_class = labels.argsort(stable=True).tensor_split(counts.cumsum()[:-1].tolist())
    decks = [_Deck(members, generator) for members in by_class]
    uses = torch.zeros(len(classes))
    batches = []
    for _ in range(num_batches):
        least_used = (uses + torch.rand(len(classes), generator=generator)).argsort()[:P]
        uses[least_used] += 1
        uses[least_used[:extra]] += 1
        sizes = [K + 1] * extra + [K] * (P - extra)
        batches.append([i for c, size in zip(least_used.tolist(), sizes, strict=True) for i in decks[c].draw(size)])
    return torch.tensor(batches)


class Shares(NamedTuple):
    """What a balanced batch is made of."""

    classes: int
    images: int
    """Of each class."""
    extra: int
    """How many of the classes have one image more."""


def shares(batch: int, images_per_class: int, num_classes: int) -> Shares:
    """As many classes as fit; where there are fewer, all of them and more images of each, so that the batch is full.

    The batch is to be a multiple of `images_per_class` where there are more classes than fit.
    """
    classes = min(batch // images_per_class, num_classes)
    return Shares(classes, batch // classes, batch % classes)


def _num_batches(num: int, num_classes: int, P: int, K: int, X: int) -> int:
    if P < 1 or K < 1:
        raise UserError(f"a balanced batch of {P} classes × {K} images is empty; both are at least 1")
    if not 0 <= X < P:
        raise UserError(f"extra={X} of {P} classes have one image more; give a number from 0 to {P - 1}")
    if num_classes < P:
        raise UserError(
            f"a balanced batch of {P} classes needs as many in the data, which has {num_classes}; "
            "take fewer, and more images of each"
        )
    if num < P * K + X:
        raise UserError(f"a balanced batch of {P} × {K} = {P * K} images is more than the {num} in the data; lower it")
    return num // (P * K + X)


class _Deck:
    """One class's images, dealt from a shuffled deck that is shuffled again when it runs out."""

    def __init__(self, members: Tensor, generator: torch.Generator) -> None:
        self._members = members
        self._generator = generator
        self._deck = self._shuffled()
        self._last: list[int] = []

    def draw(self, num: int) -> list[int]:
        hand: list[int] = []
        while len(hand) < num:
            if not self._deck:
                self._deck = self._reshuffled(hand, num)
            num_missing = num - len(hand)
            hand += self._deck[:num_missing]
            self._deck = self._deck[num_missing:]
        self._last = hand[-1:]
        return hand

    def _shuffled(self) -> list[int]:
        order = torch.randperm(len(self._members), generator=self._generator)
        positions: list[int] = self._members[order].tolist()
        return positions

    def _reshuffled(self, hand: list[int], num: int) -> list[int]:
        """What is in the hand already goes to the bottom; where it would be all of them, only the last."""
        recent = set(hand if len(self._members) >= num else hand[-1:]) or set(self._last)
        return sorted(self._shuffled(), key=recent.__contains__)
