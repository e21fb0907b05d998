"""Queries against a queue: what is differentiable, and how."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from contune.errors import UserError
from contune.kernels import queue


def unit(num: int, dim: int, seed: int) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(num, dim, generator=draw, dtype=torch.float64), dim=1).float()


@pytest.mark.parametrize("queue_too", [False, True])
def test_gradients_are_autograds(queue_too: bool) -> None:
    q_BD, x_KD = unit(6, 5, 0).double().requires_grad_(), unit(9, 5, 1).double().requires_grad_(queue_too)
    assert torch.autograd.gradcheck(lambda q, x: queue.log_sum_exp(q, x, 0.3), (q_BD, x_KD))
    assert torch.autograd.gradcheck(lambda q, x: queue.mean_place(q, x, 0.3), (q_BD, x_KD))
    torch.testing.assert_close(queue.mean_place(q_BD.detach(), x_KD.detach(), 0.3), queue.mean_place(q_BD, x_KD, 0.3))
    expected_B = (q_BD @ x_KD.T / 0.01).logsumexp(dim=1)
    torch.testing.assert_close(queue.log_sum_exp(q_BD, x_KD, 0.01), expected_B)


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
