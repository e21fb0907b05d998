import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from contune.data.split import holdout
from contune.errors import UserError

labels_and_fraction = (
    st.lists(st.integers(0, 6), min_size=1, max_size=80),
    st.floats(0, 0.99),
    st.integers(-3, 2**40),
)


@settings(max_examples=150, deadline=None)
@given(*labels_and_fraction)
def test_holdout_is_a_stratified_partition(labels: list[int], fraction: float, seed: int) -> None:
    y = torch.tensor(labels)
    keep, held = holdout(y, len(y), fraction, seed)
    assert sorted(keep.tolist() + held.tolist()) == list(range(len(y)))
    assert keep.tolist() == sorted(keep.tolist())
    assert held.tolist() == sorted(held.tolist())
    for value in y.unique():
        num, num_held = int((y == value).sum()), int((y[held] == value).sum())
        assert num_held <= num - 1
        assert num_held >= min(int(num * fraction), num - 1)
        assert num_held <= int(num * fraction) + 1
    assert len(held) <= round(len(y) * fraction)


def test_holdout_reaches_the_fraction_across_small_classes() -> None:
    y = torch.arange(50).repeat_interleave(2)  # each class owes 0.4 of an image
    _, held = holdout(y, 100, 0.2, 0)
    assert len(held) == 20
    assert len(y[held].unique()) == 20


def test_holdout_takes_the_exact_share_of_balanced_classes() -> None:
    y = torch.arange(10).repeat(50)
    _, held = holdout(y, 500, 0.1, 3)
    assert torch.bincount(y[held]).tolist() == [5] * 10


def test_single_images_stay_in_training() -> None:
    keep, held = holdout(torch.tensor([0, 1, 2]), 3, 0.9, 0)
    assert (len(keep), len(held)) == (3, 0)


def test_unlabelled_holdout() -> None:
    keep, held = holdout(None, 10, 0.3, 0)
    assert (len(keep), len(held)) == (7, 3)
    assert len(holdout(None, 10, 0.99, 0)[0]) == 1


def test_same_seed_same_split_and_another_seed_another() -> None:
    y = torch.arange(4).repeat(50)
    first, again, other = (holdout(y, 200, 0.25, seed)[1] for seed in (5, 5, 6))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_split_is_pinned() -> None:
    """A run resumed elsewhere must hold out the same images."""
    assert holdout(torch.arange(3).repeat(4), 12, 0.25, 0)[1].tolist() == [2, 6, 7]


@pytest.mark.parametrize("fraction", [-0.1, 1.0, 1.5, float("nan")])
def test_impossible_fractions(fraction: float) -> None:
    with pytest.raises(UserError, match="at least 0 and below 1"):
        holdout(None, 10, fraction, 0)
