"""Two views with the same relations to other images: ReSSL's loss.

Shapes: B queries, K places in the queue, D embedding size.
"""

import torch
from torch import Tensor

from contune.kernels.queued import log_sum_exp, mean_place
from contune.losses.checks import check_positive, check_queue, check_rows, embeddings


def relation_loss(
    queries: Tensor, keys: Tensor, queue: Tensor, *, temperature: float = 0.1, key_temperature: float = 0.04
) -> Tensor:
    """The relational consistency of ReSSL (Zheng et al. 2021), averaged over the batch.

        for each query i:
            for each place n of the queue:
                p_in = exp(k_i·queue_n / τ_k) / Σ_m exp(k_i·queue_m / τ_k)      the teacher's relation
                s_in = exp(q_i·queue_n / τ) / Σ_m exp(q_i·queue_m / τ)          the student's
            loss_i = -Σ_n p_in log s_in

    queries, keys: (B, d), row by row two views of an image; scaled to length 1 here. queue: (K, d), unit vectors.
    key_temperature: τ_k, below τ: a sharper target than the answer, so that only the nearest images matter.
    Detach the keys: they are the target. Nothing pulls q_i to k_i itself.
    """
    check_rows("queries", queries, "keys", keys)
    check_queue(queue, queries)
    check_positive("temperature", temperature)
    check_positive("key_temperature", key_temperature)
    with torch.autocast(queries.device.type, enabled=False):
        q_BD, k_BD = (embeddings(rows, normalize=True) for rows in (queries, keys))
        queue_KD = queue.to(q_BD.dtype)
        # Σ_n p_n (q·queue_n) is q with the mean that p makes of the queue.
        target_BD = mean_place(k_BD, queue_KD, key_temperature)
        attraction_B = (q_BD * target_BD).sum(dim=1) / temperature
        return (log_sum_exp(q_BD, queue_KD, temperature) - attraction_B).mean()
