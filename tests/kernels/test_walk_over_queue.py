"""Queries against a queue: the walk over its tiles against float64, and what is differentiable."""

import pytest
import torch
import torch.nn.functional as F
from loss_cases import DEVICE
from test_poisoned import poison
from torch import Tensor

from contune.errors import UserError
from contune.kernels import fused, queued

SIZES = ((1, 1, 8), (5, 63, 100), (64, 64, 128), (130, 1000, 24), (16, 300, 256), (200, 129, 64))
"""Queries, places, dimensions."""


def unit(num: int, dim: int, seed: int) -> Tensor:
    """As float32 holds it: what is measured is the kernels' error and not that of the input."""
    draw = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(num, dim, generator=draw, dtype=torch.float64), dim=1).float()


def expected(q_BD: Tensor, x_KD: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    logits_BK = q_BD.double() @ x_KD.double().T / temperature
    return logits_BK.logsumexp(dim=1), logits_BK.softmax(dim=1) @ x_KD.double()


def near(x_KD: Tensor, num: int, dim: int) -> Tensor:
    """Queries that each have a place nearby, whose share of the sum is large."""
    return F.normalize(x_KD[torch.arange(num) % len(x_KD)] + 0.5 * unit(num, dim, 1), dim=1)


@pytest.mark.parametrize(("num", "places", "dim"), SIZES)
@pytest.mark.parametrize("temperature", [0.01, 0.04, 0.2, 1.0])
def test_kernels_are_float64_to_their_tolerance(num: int, places: int, dim: int, temperature: float) -> None:
    x_KD = unit(places, dim, 0)
    q_BD = near(x_KD, num, dim)
    lse_B, mean_BD = queued.by_kernels(q_BD.to(DEVICE), x_KD.to(DEVICE), temperature)
    expected_B, expected_BD = expected(q_BD, x_KD, temperature)
    tolerance = 5e-4 / temperature  # float16 rounds either factor by up to 2^-11
    assert (lse_B.cpu() - expected_B).abs().max() < tolerance
    assert (mean_BD.cpu() - expected_BD).norm(dim=1).max() < tolerance


def test_many_splits_give_what_one_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    q_BD, x_KD = unit(40, 32, 0).to(DEVICE), unit(1000, 32, 1).to(DEVICE)
    found = []
    for processors in (1, 3, 16):
        monkeypatch.setattr(fused, "num_processors", lambda device, many=processors: many)
        found.append(queued.by_kernels(q_BD, x_KD, 0.1))
    for lse_B, mean_BD in found[1:]:
        torch.testing.assert_close(lse_B, found[0][0])
        torch.testing.assert_close(mean_BD, found[0][1], rtol=1e-3, atol=1e-4)


def test_kernels_write_all_they_read(monkeypatch: pytest.MonkeyPatch) -> None:
    q_BD, x_KD = unit(70, 20, 0).to(DEVICE), unit(200, 20, 1).to(DEVICE)
    clean = queued.by_kernels(q_BD, x_KD, 0.1)
    poison(monkeypatch)
    for one, other in zip(queued.by_kernels(q_BD, x_KD, 0.1), clean, strict=True):
        assert one.isfinite().all()
        assert torch.equal(one, other)


@pytest.mark.parametrize("queue_too", [False, True])
def test_gradient_of_the_sum_is_autograds(queue_too: bool) -> None:
    q_BD, x_KD = unit(6, 5, 0).double().requires_grad_(), unit(9, 5, 1).double().requires_grad_(queue_too)
    assert torch.autograd.gradcheck(lambda q, x: queued.log_sum_exp(q, x, 0.3), (q_BD, x_KD))


def test_gradient_of_the_mean_is_autograds() -> None:
    q_BD, x_KD = unit(6, 5, 0).double().requires_grad_(), unit(9, 5, 1).double().requires_grad_()
    assert torch.autograd.gradcheck(lambda q, x: queued.mean_place(q, x, 0.3), (q_BD, x_KD))
    torch.testing.assert_close(queued.mean_place(q_BD.detach(), x_KD.detach(), 0.3), queued.mean_place(q_BD, x_KD, 0.3))


def test_a_second_derivative_is_refused() -> None:
    q_BD = unit(3, 4, 0).requires_grad_()
    with pytest.raises(UserError, match="a loss against a queue has no second derivative"):
        torch.autograd.grad(queued.log_sum_exp(q_BD, unit(5, 4, 1), 0.3).sum(), q_BD, create_graph=True)


def test_compiled_it_is_the_same() -> None:
    def loss(q_BD: Tensor, x_KD: Tensor) -> Tensor:
        mean_BD = queued.mean_place(q_BD.detach(), x_KD, 0.1)
        return (queued.log_sum_exp(q_BD, x_KD, 0.2) - (q_BD * mean_BD).sum(dim=1)).mean()

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    grads = []
    for one in (loss, compiled):
        q_BD = unit(6, 8, 0).requires_grad_()
        one(q_BD, unit(20, 8, 1)).backward()
        grads.append(q_BD.grad)
    torch.testing.assert_close(grads[0], grads[1])
