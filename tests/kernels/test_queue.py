"""Queries against a queue: what is differentiable, and how."""

import torch
import torch.nn.functional as F
from torch import Tensor

from contune.kernels.queue import walk


def unit(num: int, dim: int, seed: int) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(num, dim, generator=draw, dtype=torch.float64), dim=1).float()


def test_value_and_gradient_are_autograds() -> None:
    q_BD, x_KD = unit(6, 5, 0).double().requires_grad_(), unit(9, 5, 1).double()
    assert torch.autograd.gradcheck(lambda q: walk(q, x_KD, 0.3)[0], q_BD)
    torch.testing.assert_close(walk(q_BD, x_KD, 0.01)[0], (q_BD @ x_KD.T / 0.01).logsumexp(dim=1))
    torch.testing.assert_close(walk(q_BD, x_KD, 0.3)[1], (q_BD @ x_KD.T / 0.3).softmax(dim=1) @ x_KD)


def test_compiled_it_is_the_same() -> None:
    def loss(q_BD: Tensor, x_KD: Tensor) -> Tensor:
        _, mean_BD = walk(q_BD.detach(), x_KD, 0.1)
        loss_B: Tensor = walk(q_BD, x_KD, 0.2)[0] - (q_BD * mean_BD).sum(dim=1)
        return loss_B.mean()

    grads = []
    for one in (loss, torch.compile(loss, fullgraph=True, backend="aot_eager")):
        q_BD = unit(6, 8, 0).requires_grad_()
        one(q_BD, unit(20, 8, 1)).backward()
        grads.append(q_BD.grad)
    torch.testing.assert_close(grads[0], grads[1])
