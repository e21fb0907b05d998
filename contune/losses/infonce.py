"""One positive against the keys of a queue: MoCo's InfoNCE.

`ntxent_loss` with candidates is another loss: there the other keys of the batch are negatives too, here they are not.
Shapes: B queries, K places in the queue, D embedding size.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from contune.losses.checks import check_positive, check_queue, check_rows, embeddings


def infonce_loss(queries: Tensor, keys: Tensor, queue: Tensor, *, temperature: float = 0.2) -> Tensor:
    """MoCo's loss, equation 1 of He et al. 2020, averaged over the batch.

        for each query i:
            D = exp(q_i·k_i / τ) + Σ_n exp(q_i·queue_n / τ)
            loss_i = -log(exp(q_i·k_i / τ) / D)

    queries, keys: (B, d), row by row two views of an image; scaled to length 1 here. queue: (K, d), unit vectors.
    Written as log(1 + exp(log Σ_n exp(q_i·queue_n / τ) - q_i·k_i / τ)), which needs no (B, 1 + K) matrix of logits.
    """
    check_rows("queries", queries, "keys", keys)
    check_queue(queue, queries)
    check_positive("temperature", temperature)
    with torch.autocast(queries.device.type, enabled=False):
        q_BD, k_BD = (embeddings(rows, normalize=True) for rows in (queries, keys))
        q_BD = q_BD / temperature
        positive_B = (q_BD * k_BD).sum(dim=1)
        negatives_B = LogSumExpOfProducts.apply(q_BD, queue.to(q_BD.dtype))  # type: ignore[no-untyped-call]  # torch leaves it untyped
        return F.softplus(negatives_B - positive_B).mean()


class LogSumExpOfProducts(torch.autograd.Function):
    """log Σ_n exp(q_i·x_n) of each row of (B, D) with all of (K, D).

    `logsumexp` writes (B, K) twice and its gradient three times; a softmax and its exponential write it once each, and
    the gradient that comes back is a factor for each row, which can wait until after the product with x.
    """

    @staticmethod
    def forward(ctx: Any, q_BD: Tensor, x_KD: Tensor) -> Tensor:
        logits_BK = q_BD @ x_KD.T
        log_shares_BK = logits_BK.log_softmax(dim=1)
        ctx.save_for_backward(q_BD, x_KD, log_shares_BK)
        return logits_BK[:, 0] - log_shares_BK[:, 0]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor | None]:
        q_BD, x_KD, log_shares_BK = ctx.saved_tensors
        shares_BK, grad_B1 = log_shares_BK.exp(), grads[0].unsqueeze(1)
        return grad_B1 * (shares_BK @ x_KD), shares_BK.T @ (grad_B1 * q_BD) if ctx.needs_input_grad[1] else None
