"""Queries against a queue of unit vectors: what MoCo's and ReSSL's losses have in common.

With p = softmax(q·x / τ) of a query q over the places x_n of a queue,

    lse(q) = log Σ_n exp(q·x_n / τ)      mean(q) = Σ_n p_n x_n      ∂ lse / ∂q = mean(q) / τ

so the forward pass also gives the gradient. mean(q) is attention with the queue as keys and as values. On a GPU the
library's attention computes it in float16, as `precision="fast"` of the pair losses does, without a (B, K) matrix.
Gradients that training does not need, of a queue or a mean, are torch's.
Shapes: B queries, K places in the queue, D embedding size, P parts of the queue.
"""

import math
from typing import Any

import torch
from torch import Tensor

from contune.errors import UserError

MOST_PARTS = 32
"""Few queries would leave a GPU idle. With this many parts of the queue, 256 queries fill an H200."""


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
    num, dim = q_BD.shape
    if q_BD.is_cuda and q_BD.dtype == torch.float32 and num > 0 and dim <= 256 and dim % 8 == 0:
        return by_attention(q_BD, x_KD, temperature)
    logits_BK = q_BD / temperature @ x_KD.T
    log_shares_BK = logits_BK.log_softmax(dim=1)
    # One column of each gives the logarithm of the sum.
    return logits_BK[:, 0] - log_shares_BK[:, 0], log_shares_BK.exp_() @ x_KD


def by_attention(q_BD: Tensor, x_KD: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    aten, (num, dim) = torch.ops.aten, q_BD.shape
    flash = aten._scaled_dot_product_flash_attention  # the public function does not return the logarithms
    attention = flash if q_BD.is_cuda else aten._scaled_dot_product_flash_attention_for_cpu
    parts = math.gcd(len(x_KD), MOST_PARTS)
    q_P1BD, x_P1KD = q_BD.half().expand(parts, 1, num, dim), x_KD.half().reshape(parts, 1, -1, dim)
    mean_P1BD, lse_P1B, *_ = attention(q_P1BD, x_P1KD, x_P1KD, scale=1 / temperature)
    lse_PB = lse_P1B[:, 0, :num]
    lse_B = lse_PB.logsumexp(dim=0)
    return lse_B, ((lse_PB - lse_B).exp()[:, :, None] * mean_P1BD[:, 0]).sum(dim=0)


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
