"""Predicting one view's embedding from another's: the cosine regressions of BYOL and SimSiam.

Shapes: N rows, D embedding size.
"""

import torch
from torch import Tensor

from contune.losses.checks import check_rows, embeddings


def negative_cosine_loss(predictions: Tensor, targets: Tensor) -> Tensor:
    """SimSiam's D(p, z), equation 1 of Chen and He 2021, averaged over the batch.

        for each row i:
            loss_i = -⟨p_i, z_i⟩ / (|p_i| |z_i|)

    Both are (N, d), of any length. From -1, where each prediction points to its target, to 1. Detach the targets:
    without the stop-gradient all embeddings fall into one point, where this loss is at its lowest.
    """
    check_rows("predictions", predictions, "targets", targets)
    with torch.autocast(predictions.device.type, enabled=False):
        p_ND, z_ND = (embeddings(rows, normalize=True) for rows in (predictions, targets))
        return -(p_ND * z_ND).sum(dim=1).mean()


def regression_loss(predictions: Tensor, targets: Tensor) -> Tensor:
    """BYOL's squared distance of unit vectors, equation 2 of Grill et al. 2020, averaged over the batch.

        for each row i:
            loss_i = |q_i / |q_i| - z_i / |z_i||² = 2 - 2 cos(q_i, z_i)

    From 0 to 4; an angle of 90°, what unrelated directions have, gives 2. Arguments as in `negative_cosine_loss`.
    """
    return 2 + 2 * negative_cosine_loss(predictions, targets)
