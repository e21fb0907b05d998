"""Queries against a queue of unit vectors: what MoCo's and ReSSL's losses have in common.

With p = softmax(q·x / τ) of a query q over the places x_n of a queue,

    lse(q) = log Σ_n exp(q·x_n / τ)      mean(q) = Σ_n p_n x_n      ∂ lse / ∂q = mean(q) / τ

so the forward pass also gives the gradient, and no (B, K) matrix is kept for the backward pass.
Shapes: B queries, K places in the queue, D embedding size.
"""

from typing import Any

import torch
from torch import Tensor


@torch.library.custom_op("contune::walk_queue", mutates_args=())
def walk(q_BD: Tensor, x_KD: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """lse and mean of each query; an operator, which `torch.compile` keeps whole. Only lse has a gradient, by q."""
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
    (mean_BD,) = ctx.saved_tensors
    return (grads[0] / ctx.temperature).unsqueeze(1) * mean_BD, None, None


walk.register_autograd(_backward, setup_context=_save_mean)
