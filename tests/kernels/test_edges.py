"""Batches at the edge of sense, on every backend: what is documented happens, and nothing else."""

import math

import pytest
import torch
from loss_cases import relative_error
from loss_ways import CHUNKED, DENSE, FUSED, LossOf, Way, closed_ways, every_way, quiet, random, solved, supcon_in
from torch import Tensor

from contune.errors import UserError
from contune.kernels import fused
from contune.losses import ntxent_loss, tcl_loss

pytestmark = quiet


@every_way
@pytest.mark.parametrize("loss_of", [tcl_loss, supcon_in])
def test_an_anchor_without_a_positive_is_an_exact_zero_and_not_in_the_mean(way: Way, loss_of: LossOf) -> None:
    z, labels = random(5), torch.tensor([3, 1, 3, 2, 3])
    each, _ = solved(way, z, labels, loss_of=loss_of, reduction="none")
    assert (each == 0).tolist() == [False, True, False, True, False]
    mean, _ = solved(way, z, labels, loss_of=loss_of)
    torch.testing.assert_close(mean, each.sum() / 3, rtol=1e-6, atol=0.0)


@every_way
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("num", [1, 5])
def test_a_batch_without_positives_is_zero_with_zero_gradient_and_says_so(way: Way, reduction: str, num: int) -> None:
    with pytest.warns(UserWarning, match=f"no anchor in this batch of {num} has a positive"):
        loss, grad = solved(way, random(num), torch.arange(num), reduction=reduction)
    assert (loss == 0).all()
    assert (grad == 0).all()


@closed_ways
@pytest.mark.parametrize("temperature", [0.01, 0.1])
@pytest.mark.parametrize("loss_of", [tcl_loss, supcon_in])
def test_equal_embeddings_are_no_special_case(way: Way, temperature: float, loss_of: LossOf) -> None:
    z, labels = random(3).repeat(4, 1), torch.arange(12) % 2
    expected = solved(DENSE, z, labels, loss_of=loss_of, temperature=temperature)
    loss, grad = solved(way, z, labels, loss_of=loss_of, temperature=temperature)
    tolerance = 2e-3 * max(1.0, 0.02 / temperature) if way.precision == "fast" else 1e-4
    assert relative_error(loss, expected[0]) < tolerance
    assert (grad - expected[1]).norm() < tolerance / temperature


@every_way
def test_a_zero_vector_is_a_number(way: Way) -> None:
    z, labels = random(8), torch.arange(8) % 2
    z[:3] = 0
    loss, grad = solved(way, z, labels)
    torch.testing.assert_close(loss, solved(DENSE, z, labels)[0], rtol=1e-3, atol=0.0)
    assert (grad[:3] == 0).all(), "it has no direction to turn"
    assert 0 < grad[3:].norm() < 100
    loss, grad = solved(way, torch.zeros(8, 6), labels)
    assert loss.isfinite()
    assert (grad == 0).all()


@every_way
@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("temperature", [0.01, 0.1])
@pytest.mark.parametrize("loss_of", [tcl_loss, supcon_in])
def test_what_is_not_a_number_goes_in_and_comes_out(way: Way, bad: float, temperature: float, loss_of: LossOf) -> None:
    z, labels = random(70), torch.arange(70) % 3
    z[40, 2] = bad
    loss, grad = solved(way, z, labels, loss_of=loss_of, temperature=temperature)
    assert loss.isnan()
    assert grad.isnan().all()


@pytest.mark.parametrize("way", [DENSE, CHUNKED, *FUSED], ids=str)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float16, 1e-3), (torch.bfloat16, 4e-3)])
def test_half_precision_in_is_half_precision_out_and_float32_between(
    way: Way, dtype: torch.dtype, tolerance: float
) -> None:
    z, labels = random(70, 16, dtype), torch.arange(70) % 7
    leaf = way.tensor(z).detach().requires_grad_()
    loss = tcl_loss(leaf, way.tensor(labels), reduction="sum", **way.settings)
    (grad,) = torch.autograd.grad(loss, leaf)
    expected, expected_grad = solved(DENSE, z, labels, reduction="sum")
    assert loss.dtype == torch.float32
    assert grad.dtype == dtype
    assert relative_error(loss.double().cpu(), expected) < (1e-4 if way.precision == "fast" else 1e-6)
    assert relative_error(grad.double().cpu(), expected_grad) < tolerance


@every_way
def test_autocast_changes_nothing(way: Way) -> None:
    z, labels = way.tensor(random(70, 16, way.dtype)).requires_grad_(), way.tensor(torch.arange(70) % 7)
    plain = tcl_loss(z, labels, **way.settings)
    with torch.autocast(z.device.type, dtype=torch.bfloat16):
        cast = tcl_loss(z, labels, **way.settings)
    assert torch.equal(plain, cast)
    assert torch.equal(*(torch.autograd.grad(loss, z)[0] for loss in (plain, cast)))


@closed_ways
def test_autocast_around_the_backward_pass_changes_nothing(way: Way) -> None:
    z, labels = way.tensor(random(70, 16, way.dtype)).requires_grad_(), way.tensor(torch.arange(70) % 7)
    (expected,) = torch.autograd.grad(tcl_loss(z, labels, **way.settings), z)
    with torch.autocast(z.device.type, dtype=torch.bfloat16):
        (actual,) = torch.autograd.grad(tcl_loss(z, labels, **way.settings), z)
    assert torch.equal(actual, expected)


@every_way
@pytest.mark.parametrize("sort_from", [1, 10**9])
def test_the_same_bits_every_time(way: Way, sort_from: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "SORT_FROM", sort_from)
    z, labels = random(130, 16), torch.arange(130) % 7
    (loss, grad), (again, grad_again) = (solved(way, z, labels, reduction="none") for _ in range(2))
    assert torch.equal(loss, again)
    assert torch.equal(grad, grad_again)


@closed_ways
def test_nobody_asks_for_a_gradient(way: Way) -> None:
    z, labels = way.tensor(random(9, dtype=way.dtype)), way.tensor(torch.arange(9) % 2)
    assert not tcl_loss(z, labels, **way.settings).requires_grad
    assert not ntxent_loss(z, labels, **way.settings).requires_grad


@closed_ways
def test_a_second_derivative_is_refused_with_the_way_out(way: Way) -> None:
    z, labels = way.tensor(random(9, dtype=way.dtype)).requires_grad_(), way.tensor(torch.arange(9) % 2)
    loss = tcl_loss(z, labels, **way.settings)
    with pytest.raises(UserError, match="no second derivative; backend='dense' has one"):
        torch.autograd.grad(loss, z, create_graph=True)


@pytest.mark.parametrize("loss_of", [tcl_loss, supcon_in])
def test_dense_has_a_second_derivative(loss_of: LossOf) -> None:
    z, labels = random(5, 3).requires_grad_(), torch.tensor([0, 1, 0, 1, 2])

    def loss(z: Tensor) -> Tensor:
        return loss_of(z, labels, temperature=0.5, backend="dense")

    assert torch.autograd.gradcheck(loss, z)
    assert torch.autograd.gradgradcheck(loss, z)


@every_way
def test_losses_of_anchors_may_be_weighed_in_place(way: Way) -> None:
    z = way.tensor(random(8).to(way.dtype)).detach().requires_grad_()
    labels, weights = way.tensor(torch.arange(8) % 2), way.tensor(torch.arange(8))
    grads = []
    for in_place in (True, False):
        losses = tcl_loss(z, labels, reduction="none", **way.settings)
        weighed = losses.mul_(weights) if in_place else losses * weights
        grads.append(torch.autograd.grad(weighed.sum(), z)[0])
    torch.testing.assert_close(*grads)
