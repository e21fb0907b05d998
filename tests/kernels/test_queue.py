"""Queries against a queue: the library's attention against float64, and what is differentiable."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from contune.errors import UserError
from contune.kernels import queue

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def unit(num: int, dim: int, seed: int) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(num, dim, generator=draw, dtype=torch.float64), dim=1).float()


@pytest.mark.parametrize(("num", "places", "dim"), [(1, 1, 8), (5, 63, 104), (64, 64, 128), (130, 1000, 24)])
@pytest.mark.parametrize("temperature", [0.01, 0.04, 0.2, 1.0])
def test_attention_is_float64_to_the_tolerance_of_float16(num: int, places: int, dim: int, temperature: float) -> None:
    x_KD = unit(places, dim, 0)
    q_BD = F.normalize(x_KD[torch.arange(num) % places] + 0.5 * unit(num, dim, 1), dim=1)  # each has a place nearby
    lse_B, mean_BD = queue.by_attention(q_BD.to(DEVICE), x_KD.to(DEVICE), temperature)
    logits_BK = q_BD.double() @ x_KD.double().T / temperature
    tolerance = 5e-4 / temperature  # float16 rounds either factor by up to 2^-11
    assert (lse_B.cpu() - logits_BK.logsumexp(dim=1)).abs().max() < tolerance
    assert (mean_BD.cpu() - logits_BK.softmax(dim=1) @ x_KD.double()).norm(dim=1).max() < tolerance


@pytest.mark.parametrize("queue_too", [False, True])
def test_gradients_are_autograds(queue_too: bool) -> None:
    q_BD, x_KD = unit(6, 5, 0).double().requires_grad_(), unit(9, 5, 1).double().requires_grad_(queue_too)
    assert torch.autograd.gradcheck(lambda q, x: queue.log_sum_exp(q, x, 0.3), (q_BD, x_KD))
    assert torch.autograd.gradcheck(lambda q, x: queue.mean_place(q, x, 0.3), (q_BD, x_KD))
    torch.testing.assert_close(queue.mean_place(q_BD.detach(), x_KD.detach(), 0.3), queue.mean_place(q_BD, x_KD, 0.3))


def test_a_second_derivative_is_refused() -> None:
    q_BD = unit(3, 4, 0).requires_grad_()
    with pytest.raises(UserError, match="no second derivative"):
        torch.autograd.grad(queue.log_sum_exp(q_BD, unit(5, 4, 1), 0.3).sum(), q_BD, create_graph=True)


def test_compiled_it_is_the_same() -> None:
    def loss(q_BD: Tensor, x_KD: Tensor) -> Tensor:
        mean_BD = queue.mean_place(q_BD.detach(), x_KD, 0.1)
        return (queue.log_sum_exp(q_BD, x_KD, 0.2) - (q_BD * mean_BD).sum(dim=1)).mean()

    grads = []
    for one in (loss, torch.compile(loss, fullgraph=True, backend="aot_eager")):
        q_BD = unit(6, 8, 0).requires_grad_()
        one(q_BD, unit(20, 8, 1)).backward()
        grads.append(q_BD.grad)
    torch.testing.assert_close(grads[0], grads[1])
