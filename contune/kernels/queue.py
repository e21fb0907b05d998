"""Queries against a queue of unit vectors: what MoCo's and ReSSL's losses have in common.

With p = softmax(q·x / τ) of a query q over the places x_n of a queue,

    lse(q) = log Σ_n exp(q·x_n / τ)      mean(q) = Σ_n p_n x_n      ∂ lse / ∂q = mean(q) / τ

so the forward pass also gives the gradient, and no (B, K) matrix is kept for the backward pass. Gradients that training
does not need, of a queue or a mean, are torch's.
Shapes: B queries, K places in the queue, D embedding size.
"""

from typing import Any

import torch
from torch import Tensor

from contune.errors import UserError


def log_sum_exp(q_BD: Tensor, x_KD: Tensor, temperature: float) -> Tensor:
    """lse of each query."""
    if x_KD.requires_grad:
        return (q_BD / temperature @ x_KD.T).logsumexp(dim=1)
    lse_B: Tensor = walk(q_BD, x_KD, temperature)[0]
    return lse_B


def mean_place(q_BD: Tensor, x_KD: Tensor, temperature: float) -> Tensor:
    """The mean of the queue as each query weighs it."""
    if q_BD.requires_grad or x_KD.requires_grad:
        shares_BK = (q_BD / temperature @ x_KD.T).softmax(dim=1)
        return torch.mm(shares_BK, x_KD)
    mean_BD: Tensor = walk(q_BD, x_KD, temperature)[1]
    return mean_BD


@torch.library.custom_op("contune::walk_queue", mutates_args=())
def walk(q_BD: Tensor, x_KD: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """lse and mean of each query; an operator, which `torch.compile` keeps whole."""
    logits_BK = q_BD / temperature @ x_KD.T
    log_shares_BK = logits_BK.log_softmax(dim=1)
    # One column of each gives the logarithm of the sum.
    return logits_BK[:, 0] - log_shares_BK[:, 0], log_shares_BK.exp_() @ x_KD


@walk.register_fake
def _(q_BD: Tensor, x_KD: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    return q_BD.new_empty(len(q_BD)), q_BD.new_empty(q_BD.shape)


def _save_mean(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.temperature = inputs[2]
    ctx.save_for_backward(output[1])


def _backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
    """Of lse; nobody asks for that of the mean."""
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():
        raise UserError("a loss against a queue has no second derivative")
    (mean_BD,) = ctx.saved_tensors
    return (grads[0] / ctx.temperature).unsqueeze(1) * mean_BD, None, None


walk.register_autograd(_backward, setup_context=_save_mean)
