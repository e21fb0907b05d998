"""Triplet and N-pair losses against nested loops and hand-computed cases."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from contune.losses import npair_loss, triplet_loss


def random_unit(num: int, dim: int = 5, seed: int = 0) -> Tensor:
    return F.normalize(torch.randn(num, dim, generator=torch.Generator().manual_seed(seed)).double(), dim=1)


def nested_triplet(z: Tensor, labels: Tensor, margin: float) -> Tensor:
    losses = []
    for i in range(len(z)):
        positive = [(z[i] - z[p]).norm() for p in range(len(z)) if p != i and labels[p] == labels[i]]
        negative = [(z[i] - z[n]).norm() for n in range(len(z)) if labels[n] != labels[i]]
        if positive and negative:
            losses.append(torch.relu(margin + torch.stack(positive).max() - torch.stack(negative).min()))
    return torch.stack(losses).mean()


def nested_npair(z: Tensor, labels: Tensor, tau: float) -> Tensor:
    losses = []
    for i in range(len(z)):
        positives = [p for p in range(len(z)) if p != i and labels[p] == labels[i]]
        negatives = [n for n in range(len(z)) if labels[n] != labels[i]]
        if not positives or not negatives:
            continue
        each = []
        for p in positives:
            total = z.new_ones(())
            for n in negatives:
                total = total + torch.exp((z[i] @ z[n] - z[i] @ z[p]) / tau)
            each.append(total.log())
        losses.append(torch.stack(each).mean())
    return torch.stack(losses).mean()


@pytest.mark.parametrize("labels", [[0, 0, 1, 1, 2, 2, 0], [0, 0, 1, 2, 3], [0, 1, 0, 1, 1, 1]])
def test_against_nested_loops(labels: list[int]) -> None:
    y = torch.tensor(labels)
    z = random_unit(len(y)).requires_grad_()
    for actual, expected in (
        (triplet_loss(z, y, margin=0.7, normalize=False), nested_triplet(z, y, 0.7)),
        (npair_loss(z, y, temperature=0.3, normalize=False), nested_npair(z, y, 0.3)),
    ):
        torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(
            torch.autograd.grad(actual, z)[0], torch.autograd.grad(expected, z)[0], rtol=1e-9, atol=1e-12
        )


def test_by_hand() -> None:
    z = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]], dtype=torch.float64)
    labels = torch.tensor([0, 0, 1, 1])
    assert triplet_loss(z, labels, margin=2.0).item() == pytest.approx(2.0 - math.sqrt(2))
    assert triplet_loss(z, labels, margin=0.3).item() == 0
    assert triplet_loss(z, F.one_hot(labels).bool(), margin=2.0) == triplet_loss(z, labels, margin=2.0)
    assert npair_loss(z, labels, temperature=0.5).item() == pytest.approx(math.log(1 + 2 * math.exp(-2)))


@pytest.mark.parametrize("loss", [triplet_loss, npair_loss])
def test_one_class_is_a_zero_with_zero_gradient_and_duplicates_are_finite(loss: type) -> None:
    z = random_unit(4).requires_grad_()
    with pytest.warns(UserWarning, match="of 4 has both a positive and a negative"):
        value = loss(z, torch.zeros(4, dtype=torch.long))
    value.backward()
    assert value == 0
    assert z.grad is not None
    assert (z.grad == 0).all()

    with pytest.warns(UserWarning, match="positive"):
        assert loss(z[:0], torch.zeros(0, dtype=torch.long)) == 0

    same = torch.ones(4, 3, requires_grad=True)
    loss(same, torch.tensor([0, 0, 1, 1])).backward()
    assert same.grad is not None
    assert same.grad.isfinite().all()
