"""The order of images, as a pure function of seed and epoch, and random numbers as a pure function of integers.

Shapes: B batches, P classes in a batch, K images of each, X of which have one more.
"""

import numpy as np
import torch
from torch import Tensor


def mixed_seed(*numbers: int) -> int:
    """One seed for a tuple of integers. Neighboring tuples, also (0, 1) and (1, 0), share no random stream."""
    entropy = [number % 2**64 for number in numbers]
    return int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0])


def mixed_generator(*numbers: int, device: torch.device | str = "cpu") -> torch.Generator:
    """A generator with this tuple's seed. On the CPU its numbers are the same on every machine."""
    return torch.Generator(device).manual_seed(mixed_seed(*numbers))


def shuffled_order(num: int, seed: int, epoch: int) -> Tensor:
    """Every position once, in this epoch's order."""
    return torch.randperm(num, generator=mixed_generator(seed, epoch))


def shares(batch: int, images_per_class: int, num_classes: int) -> tuple[int, int, int]:
    """Of a balanced batch: classes, images per class, and how many of the classes have one image more.

    As many classes as fit, but two or more. With fewer classes than that, all of them and more images of each.
    """
    classes = min(max(batch // images_per_class, min(2, batch)), num_classes)
    return classes, batch // classes, batch % classes


def balanced_batches(
    labels: Tensor, classes_per_batch: int, images_per_class: int, seed: int, epoch: int, *, extra: int = 0
) -> Tensor:
    """Class-balanced batches for imbalanced data: positions (B, P·K + X), class after class in each row.

    A row has P different classes with K images each; X of them, the `extra`, have one more. Over an epoch all classes
    appear equally often, give or take one. A class deals its images like a deck of cards: all of them before any
    repeats. A row repeats an image only if its class is too small. An epoch has len(labels) // (P·K + X) rows.
    """
    P, K, X = classes_per_batch, images_per_class, extra
    classes, counts = np.unique(labels.numpy(), return_counts=True)
    generator = mixed_generator(seed, epoch)
    members = labels.argsort(stable=True).tensor_split(counts.cumsum()[:-1].tolist())

    def shuffled(c: int) -> list[int]:
        positions: list[int] = members[c][torch.randperm(len(members[c]), generator=generator)].tolist()
        return positions

    def deal(c: int, num: int) -> list[int]:
        hand: list[int] = []
        while len(hand) < num:
            if not decks[c]:
                # Images already in the hand go to the bottom; if that is the whole class, only the last one does.
                recent = set(hand if len(members[c]) >= num else hand[-1:]) or {last[c]}
                decks[c] = sorted(shuffled(c), key=recent.__contains__)
            num_missing = num - len(hand)
            hand += decks[c][:num_missing]
            del decks[c][:num_missing]
        last[c] = hand[-1]
        return hand

    decks, last = list(map(shuffled, range(len(classes)))), [-1] * len(classes)
    uses = torch.zeros(len(classes))
    batches = []
    for _ in range(len(labels) // (P * K + X)):
        least_used = (uses + torch.rand(len(classes), generator=generator)).argsort()[:P]
        uses[least_used] += 1
        uses[least_used[:X]] += 1
        sizes = [K + 1] * X + [K] * (P - X)
        batches.append([i for c, size in zip(least_used.tolist(), sizes, strict=True) for i in deal(c, size)])
    return torch.tensor(batches)
