"""One positive against the keys of a queue: MoCo's InfoNCE.

`ntxent_loss` with candidates is another loss: there the other keys of the batch are negatives too, here they are not.
Shapes: B queries, K places in the queue, D embedding size.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from contune.kernels.queued import log_sum_exp
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
        positive_B = (q_BD * k_BD).sum(dim=1) / temperature
        negatives_B = log_sum_exp(q_BD, queue.to(q_BD.dtype), temperature)
        return F.softplus(negatives_B - positive_B).mean()
