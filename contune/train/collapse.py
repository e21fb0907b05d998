"""Whether the features still tell images apart: four numbers for the log, and a sentence when they no longer do.

Shapes: N views of all images, V views of each, D features.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

COLLAPSED_RANK = 1.5
"""An effective rank below it: all features lie on one line, or in one point."""


@torch.no_grad()
def spread(features_ND: Tensor, num_views: int) -> dict[str, Tensor]:
    """Of one process's views, stacked view after view, in directions (unit vectors) of the features.

    feature_std: their standard deviation, times √D: 1 where they go all ways, 0 in a point.
    effective_rank: (Σλ)² / Σλ² of the covariance's eigenvalues: how many dimensions carry the variance.
    alignment: mean squared distance of two views of an image; uniformity: log mean exp(-2 d²) over pairs of images
    (Wang and Isola 2020). Lower is better for both.
    """
    z_ND = F.normalize(features_ND.float(), dim=1)
    first_BD, second_BD = z_ND.chunk(num_views)[0], z_ND.chunk(num_views)[min(1, num_views - 1)]
    centred_ND = z_ND - z_ND.mean(dim=0)
    num, dim = centred_ND.shape
    smaller = centred_ND.T @ centred_ND if dim < num else centred_ND @ centred_ND.T
    distances_BB = (2 - 2 * first_BD @ first_BD.T).clamp(min=0)
    others_BB = ~torch.eye(len(first_BD), dtype=torch.bool, device=z_ND.device)
    mean_potential = (distances_BB.mul(-2).exp() * others_BB).sum() / others_BB.sum().clamp(min=1)
    return {
        "feature_std": z_ND.std(dim=0, unbiased=False).mean() * math.sqrt(dim),
        "effective_rank": smaller.diagonal().sum().square() / smaller.square().sum().clamp(min=1e-12),
        "alignment": (first_BD - second_BD).square().sum(dim=1).mean(),
        "uniformity": mean_potential.clamp(min=1e-12).log(),
    }


def collapse_sentence(effective_rank: float, step: int) -> str | None:
    """What to say of features of this rank; None while they are well."""
    if effective_rank >= COLLAPSED_RANK:
        return None
    return (
        f"by step {step} the features have collapsed: their effective rank is {effective_rank:.2f}, so all images look "
        "alike to this encoder. Stop the run (Ctrl-C) and lower optim.lr, lengthen optim.warmup_epochs, or take a "
        "larger optim.batch_images"
    )
