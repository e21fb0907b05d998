"""Which images in which order: pure functions of (seed, epoch).

Shapes: B batches, P classes in a batch, K images of each.
"""

import numpy as np
import torch
from torch import Tensor

from contune.data.seeding import mixed_generator
from contune.errors import UserError


def shuffled_order(num: int, seed: int, epoch: int) -> Tensor:
    """Every position once, in an order of this epoch's own."""
    return torch.randperm(num, generator=mixed_generator(seed, epoch))


def balanced_batches(labels: Tensor, classes_per_batch: int, images_per_class: int, seed: int, epoch: int) -> Tensor:
    """Class-balanced batches for imbalanced data: positions (B, P·K), class after class in each row.

    A row has P different classes and K images of each. Over the epoch every class comes equally often, give
    or take one. A class deals its images like a deck of cards, all of them before any comes again, and in
    one row the same image comes twice only where the class has fewer than K. An epoch has
    len(labels) // (P·K) rows.
    """
    P, K = classes_per_batch, images_per_class
    classes, counts = np.unique(labels.numpy(), return_counts=True)
    num_batches = _num_batches(len(labels), len(classes), P, K)
    generator = mixed_generator(seed, epoch)
    by_class = labels.argsort(stable=True).tensor_split(counts.cumsum()[:-1].tolist())
    decks = [_Deck(members, generator) for members in by_class]
    uses = torch.zeros(len(classes))
    batches = []
    for _ in range(num_batches):
        least_used = (uses + torch.rand(len(classes), generator=generator)).argsort()[:P]
        uses[least_used] += 1
        batches.append([image for c in least_used.tolist() for image in decks[c].draw(K)])
    return torch.tensor(batches)


def _num_batches(num: int, num_classes: int, P: int, K: int) -> int:
    if P < 1 or K < 1:
        raise UserError(f"a balanced batch of {P} classes × {K} images is empty; both are at least 1")
    if num_classes < P:
        raise UserError(f"a balanced batch of {P} classes needs as many in the data, which has {num_classes}")
    if num < P * K:
        raise UserError(f"a balanced batch of {P} × {K} = {P * K} images is more than the {num} in the data")
    return num // (P * K)


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
