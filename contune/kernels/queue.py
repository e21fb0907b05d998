"""Queries against a queue of unit vectors: what MoCo's and ReSSL's losses have in common.

With p = softmax(q·x / τ) of a query q over the places x_n of a queue,

    lse(q) = log Σ_n exp(q·x_n / τ)      mean(q) = Σ_n p_n x_n      ∂ lse / ∂q = mean(q) / τ

so the forward pass also gives the gradient. On a GPU the factors of both matrix products are rounded to float16, as
with `precision="fast"` of the pair losses. Gradients that training does not need, of a queue or a mean, are torch's.
Shapes: B queries, K places in the queue, D embedding size.
"""

from typing import Any

import torch
from torch import Tensor

from contune.errors import UserError
from contune.kernels.fused import wide_product


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
    if q_BD.is_cuda and q_BD.dtype == torch.float32:
        x_half_KD = x_KD.half()
        logits_BK = wide_product(q_BD.half(), x_half_KD.T).div_(temperature)
        top_B1 = logits_BK.amax(dim=1, keepdim=True)
        exp_BK = logits_BK.sub_(top_B1).exp_()
        sum_B1 = exp_BK.sum(dim=1, keepdim=True)
        return (top_B1 + sum_B1.log()).squeeze(1), wide_product(exp_BK.half(), x_half_KD) / sum_B1
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
