"""Numbers that are far apart: exponentials that nearly overflow, factors of 0, labels that fill their type."""

from typing import Any

import pytest
import torch
from loss_cases import relative_error
from loss_ways import DENSE, Way, closed_ways, quiet, random, solved
from torch import Tensor

from contune.errors import UserError
from contune.losses import supcon_loss

pytestmark = quiet


@closed_ways
@pytest.mark.parametrize(("classes", "temperature"), [(1, 0.1), (5, 0.05), (5, 0.02), (5, 0.013)])
def test_an_embedding_far_from_all_others_is_no_overflow(way: Way, classes: int, temperature: float) -> None:
    """Its D is tiny, so that its factor 1/D is huge where nothing small is there to be multiplied with."""
    z, labels = random(65, 16) * 0.05, torch.arange(65) % classes
    z[:, 0] += 1
    z[0] *= -1
    expected = solved(DENSE, z, labels, loss_of=supcon_loss, temperature=temperature)
    loss, grad = solved(way, z, labels, loss_of=supcon_loss, temperature=temperature)
    assert relative_error(loss, expected[0]) < 1e-3
    assert relative_error(grad, expected[1]) < (2e-2 if way.precision == "fast" else 1e-4)


@closed_ways
@pytest.mark.parametrize(("k1", "temperature"), [(1.0, 0.01), (0.0, 0.01), (1.0, 0.02), (1.0, 0.1)])
def test_without_k2_negatives_are_as_if_they_were_not_there(way: Way, k1: float, temperature: float) -> None:
    """Positives on opposite sides and negatives nearby, so that exp(s/τ) of the two are worlds apart."""
    z = torch.tensor([[1.0, 0.0], [-1.0, 0.1], [0.7, 0.7], [1.0, 0.01], [-1.0, 0.02], [0.7, 0.6]])
    labels = torch.tensor([0, 0, 0, 1, 1, 1])
    if way.backend == "fused":
        with pytest.raises(UserError, match="backend='fused' needs k2 above 0"):
            solved(way, z, labels, k1=k1, k2=0.0, temperature=temperature)
        return
    expected = solved(DENSE, z, labels, k1=k1, k2=0.0, temperature=temperature)
    loss, grad = solved(way, z, labels, k1=k1, k2=0.0, temperature=temperature)
    assert relative_error(loss, expected[0]) < 1e-2
    assert relative_error(grad, expected[1]) < 2e-2


@closed_ways
@pytest.mark.parametrize("z", [[[1.0, 0.0], [-1.0, 1e-3]], [[1.0, 0.0], [-1.0, 1e-3], [-1.0, 1.0]]], ids=len)
def test_a_large_upstream_gradient_only_scales(way: Way, z: list[list[float]]) -> None:
    """65,536 is where automatic loss scaling starts."""
    labels = way.tensor(torch.zeros(len(z), dtype=torch.long))
    leaf = way.tensor(torch.tensor(z, dtype=way.dtype)).requires_grad_()
    losses = [supcon_loss(leaf, labels, temperature=0.0128, **way.settings) for _ in range(2)]
    (plain,), (scaled,) = torch.autograd.grad(losses[0], leaf), torch.autograd.grad(losses[1] * 65536.0, leaf)
    torch.testing.assert_close(scaled / 65536.0, plain, rtol=1e-4, atol=1e-3)


@closed_ways
def test_a_huge_k1_is_no_overflow(way: Way) -> None:
    z, labels = random(70, 8), torch.arange(70) % 4
    expected = solved(DENSE, z, labels, k1=1e38)
    loss, grad = solved(way, z, labels, k1=1e38)
    assert relative_error(loss, expected[0]) < 1e-3
    assert relative_error(grad, expected[1]) < 2e-3


@closed_ways
@pytest.mark.parametrize(
    "knobs",
    [
        {"k2": 1e300},
        {"k2": 1e30},
        {"k1": 1e300},
        {"k1": 1e300, "k2": 1e300},
        {"k1": 0.0, "k2": 1e-120, "temperature": 0.01},
        {"k1": 0.0, "k2": 1e-30, "temperature": 0.01},
    ],
    ids=str,
)
def test_knobs_beyond_float32_are_no_overflow(way: Way, knobs: dict[str, Any]) -> None:
    z, labels = random(70, 8), torch.arange(70) % 4
    if way.backend == "fused" and (1e300 in knobs.values() or 1e-120 in knobs.values()):
        with pytest.raises(UserError, match=r"backend='fused' needs k[12] .* and got 1e"):
            solved(way, z, labels, **knobs)
        return
    expected = solved(DENSE, z, labels, **knobs)
    loss, grad = solved(way, z, labels, **knobs)
    assert relative_error(loss, expected[0]) < (1e-2 if way.precision == "fast" else 1e-4)
    assert relative_error(grad, expected[1]) < (2e-2 if way.precision == "fast" else 1e-3)


@closed_ways
def test_nothing_to_compare_is_nothing_learnt(way: Way) -> None:
    z, labels, none = random(5), torch.arange(5) % 2, torch.zeros(0, dtype=torch.long)
    queue = way.tensor(torch.zeros(0, 6, dtype=way.dtype))
    with pytest.warns(UserWarning, match="no anchor in this batch of 0 has a positive"):
        assert solved(way, z[:0], none)[0] == 0
    with pytest.warns(UserWarning, match="no anchor in this batch of 5 has a positive"):
        loss, grad = solved(way, z, labels, candidates=queue, candidate_labels=way.tensor(none))
    assert loss == 0
    assert (grad == 0).all()


@closed_ways
@pytest.mark.parametrize("labels", [torch.arange(7) % 2 == 0, (torch.arange(7) % 2 + 253).to(torch.uint8)])
def test_bool_and_bytes_are_labels_too(way: Way, labels: Tensor) -> None:
    torch.testing.assert_close(
        solved(way, random(7), labels)[0], solved(DENSE, random(7), labels.long())[0], rtol=1e-3, atol=0.0
    )


@closed_ways
@pytest.mark.parametrize("first", [-6, -2, -1, 0, 2**40])
def test_any_integer_is_a_label(way: Way, first: int) -> None:
    """Those included that kernels put where a tile reaches past the batch."""
    z, labels = random(70, 8), torch.arange(70) % 4
    expected = solved(DENSE, z, labels)
    loss, grad = solved(way, z, labels + first)
    assert relative_error(loss, expected[0]) < 1e-3
    assert relative_error(grad, expected[1]) < 2e-3
