"""Queries against a queue of unit vectors, in one walk over it: what MoCo's and ReSSL's losses have in common.

With p = softmax(q·x / τ) of a query q over the places x_n of a queue,

    lse(q) = log Σ_n exp(q·x_n / τ)      mean(q) = Σ_n p_n x_n      ∂ lse / ∂q = mean(q) / τ

so that the backward pass is known with the forward one, and on a GPU no (B, K) matrix is ever written. There factors
are rounded to float16, as `precision="fast"` of the pair losses does. Gradients that training does not ask for, of a
queue or of a mean, are torch's.
Shapes: B queries, K places in the queue, D embedding size.
"""

from typing import Any

import torch
from torch import Tensor

from contune.device import HAS_TRITON
from contune.errors import UserError
from contune.kernels import fused

LARGEST_BLOCK = 128
PLACES_OF_A_TILE = 64
DIMS_OF_A_SUM = 64


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
    if _has_kernels(q_BD):
        with torch.cuda.device_of(q_BD):
            return by_kernels(q_BD, x_KD, temperature)
    logits_BK = q_BD / temperature @ x_KD.T
    log_shares_BK = logits_BK.log_softmax(dim=1)
    # One column of each gives the logarithm of the sum.
    return logits_BK[:, 0] - log_shares_BK[:, 0], log_shares_BK.exp_() @ x_KD


@walk.register_fake
def _(q_BD: Tensor, x_KD: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    return q_BD.new_empty(len(q_BD)), q_BD.new_empty(q_BD.shape)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.temperature = inputs[2]
    ctx.save_for_backward(output[1])


def _backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
    """Of lse; nobody asks for that of the mean."""
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():
        raise UserError("a loss against a queue has no second derivative")
    (mean_BD,) = ctx.saved_tensors
    return (grads[0] / ctx.temperature).unsqueeze(1) * mean_BD, None, None


walk.register_autograd(_backward, setup_context=_setup_context)


def _has_kernels(q_BD: Tensor) -> bool:
    num, dim = q_BD.shape
    return HAS_TRITON and q_BD.is_cuda and q_BD.dtype == torch.float32 and num > 0 and dim <= fused.RESIDENT_DIM


def by_kernels(q_BD: Tensor, x_KD: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    from contune.kernels import queued_tiles  # needs triton, which a CPU-only torch does not bring

    (num, dim), num_places = q_BD.shape, len(x_KD)
    block = min(LARGEST_BLOCK, fused.padded(num))
    blocks, tiles = -(-num // block), -(-num_places // PLACES_OF_A_TILE)
    tiles_per_split = -(-tiles // min(tiles, max(1, fused.num_processors(q_BD.device) // blocks)))
    splits = -(-tiles // tiles_per_split)
    top_SB, sum_SB = q_BD.new_empty(splits, num), q_BD.new_empty(splits, num)
    part_SBD = q_BD.new_empty(splits, num, dim)
    queued_tiles.walk_kernel[(blocks, splits)](
        q_BD.half().contiguous(), x_KD.half().contiguous(), top_SB, sum_SB, part_SBD,
        num, num_places, tiles_per_split * PLACES_OF_A_TILE, fused.LOG2_E / temperature,
        D=dim, BD=fused.padded(dim), BM=block, BN=PLACES_OF_A_TILE, num_warps=8 if block > 64 else 4, num_stages=2,
    )  # fmt: skip
    lse_B, mean_BD = q_BD.new_empty(num), q_BD.new_empty(num, dim)
    queued_tiles.finish_kernel[(num, -(-dim // DIMS_OF_A_SUM))](
        top_SB, sum_SB, part_SBD, lse_B, mean_BD, num, splits,
        D=dim, BS=fused.padded(splits), BD=DIMS_OF_A_SUM,
    )  # fmt: skip
    return lse_B, mean_BD
