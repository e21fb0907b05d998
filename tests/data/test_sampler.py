"""The order of images: permutations, balanced batches, and the same numbers on every machine."""

from collections import Counter
from itertools import pairwise

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from contune.data.sampler import balanced_batches, shares, shuffled_order


def test_shuffled_order_is_a_permutation_of_its_own_for_each_seed_and_epoch() -> None:
    orders = {(s, e): shuffled_order(100, s, e) for s in range(3) for e in range(3)}
    for order in orders.values():
        assert sorted(order.tolist()) == list(range(100))
    assert len({tuple(order.tolist()) for order in orders.values()}) == 9
    assert torch.equal(orders[1, 2], shuffled_order(100, 1, 2))


def test_orders_are_pinned() -> None:
    """A run resumed elsewhere must see the same images."""
    assert shuffled_order(8, 0, 0).tolist() == [4, 1, 3, 5, 0, 2, 6, 7]
    assert balanced_batches(torch.tensor([0, 0, 0, 1, 1, 1]), 2, 1, 0, 0).tolist() == [[0, 4], [1, 5], [2, 3]]


@st.composite
def imbalanced(draw: st.DrawFn) -> tuple[torch.Tensor, int, int]:
    sizes = draw(st.lists(st.integers(1, 15), min_size=1, max_size=6))
    labels = torch.repeat_interleave(torch.arange(len(sizes)) * 3 + 1, torch.tensor(sizes))
    classes = draw(st.integers(1, len(sizes)))
    images = draw(st.integers(1, max(1, len(labels) // classes)))
    return labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))], classes, images


@settings(max_examples=100, deadline=None)
@given(imbalanced(), st.integers(0, 5))
def test_balanced_batches(case: tuple[torch.Tensor, int, int], epoch: int) -> None:
    labels, P, K = case
    sizes = Counter(labels.tolist())
    batches = balanced_batches(labels, P, K, 7, epoch)
    assert batches.shape == (len(labels) // (P * K), P * K)
    uses: Counter[int] = Counter(dict.fromkeys(sizes, 0))
    for row in batches:
        rows_PK = row.view(P, K)
        classes = labels[rows_PK]
        assert (classes == classes[:, :1]).all()
        assert len(set(classes[:, 0].tolist())) == P
        uses.update(classes[:, 0].tolist())
        for value, images in zip(classes[:, 0].tolist(), rows_PK.tolist(), strict=True):
            assert len(set(images)) == min(K, sizes[value])
    assert max(uses.values()) - min(uses.values()) <= 1
    _assert_dealt_like_cards(batches.view(-1, K), labels, sizes)


def _assert_dealt_like_cards(hands: torch.Tensor, labels: torch.Tensor, sizes: Counter[int]) -> None:
    for value, size in sizes.items():
        dealt = [i for hand in hands.tolist() for i in hand if labels[hand[0]] == value]
        for start in range(0, len(dealt), size):
            deck = dealt[start : start + size]
            assert len(set(deck)) == len(deck)
        if size > 1:
            assert all(a != b for a, b in pairwise(dealt))


@settings(max_examples=100, deadline=None)
@given(imbalanced(), st.data())
def test_batches_that_no_number_of_classes_divides(case: tuple[torch.Tensor, int, int], data: st.DataObject) -> None:
    """All classes in every row, none with two images more than another, in a row or over the epoch."""
    labels, *_ = case
    sizes = Counter(labels.tolist())
    batch = data.draw(st.integers(len(sizes), len(labels)))
    P, K, X = shares(batch, 1, len(sizes))
    batches = balanced_batches(labels, P, K, 7, 0, extra=X)
    assert batches.shape == (len(labels) // batch, batch)
    dealt: Counter[int] = Counter()
    for row in batches:
        counts = Counter(labels[row].tolist())
        assert sorted(counts.values()) == [K] * (P - X) + [K + 1] * X
        for value, count in counts.items():
            assert len(set(row[labels[row] == value].tolist())) == min(count, sizes[value])
        dealt.update(counts)
    assert max(dealt.values()) - min(dealt.values()) <= 1
    assert torch.equal(batches, balanced_batches(labels, P, K, 7, 0, extra=X))
