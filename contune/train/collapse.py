"""Whether images are told apart: four numbers of the features at log points, and a sentence when they are not.

Shapes: N views of all images, V views of each, D features.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from contune.methods import Output
from contune.methods.base import Guess

COLLAPSED_RANK = 1.5
"""An effective rank below it: all features lie on one line, or in one point."""
GUESSING_SHARE, GUESSING_EPOCHS, GUESSING_STEPS = 0.99, 5, 1000
"""A loss that after so many epochs and steps is still above that share of a guess's."""


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
    variance_D, mean_D = torch.var_mean(z_ND, dim=0, correction=0)
    centred_ND = z_ND - mean_D
    num, dim = centred_ND.shape
    smaller = centred_ND.T @ centred_ND if dim < num else centred_ND @ centred_ND.T
    # exp(-2 d²) is exp(4 cos - 4); an image with itself is no pair.
    potentials_BB = (first_BD @ first_BD.T).fill_diagonal_(-math.inf).mul_(4).exp_()
    pairs = max(1, len(first_BD) * (len(first_BD) - 1))
    return {
        "feature_std": variance_D.sqrt().mean() * math.sqrt(dim),
        "effective_rank": (num * variance_D.sum()).square() / smaller.square().sum().clamp(min=1e-12),
        "alignment": F.mse_loss(first_BD, second_BD) * dim,
        "uniformity": (potentials_BB.sum() * (math.exp(-4) / pairs)).clamp(min=1e-12).log(),
    }


class SpreadRecorder:
    """Keeps the features of the last step, and on demand says how spread out they are."""

    def __init__(self, num_views: int) -> None:
        self.num_views = num_views
        self.features_ND: Tensor

    def keep(self, output: Output) -> None:
        self.features_ND = output.features_ND

    def read(self) -> dict[str, Tensor]:
        return spread(self.features_ND, self.num_views)


def collapse_sentence(effective_rank: float, step: int) -> str | None:
    """What to say of features of this rank; None while they are well."""
    if effective_rank >= COLLAPSED_RANK:
        return None
    return (
        f"by step {step} the features have collapsed: their effective rank is {effective_rank:.2f}, so all images look "
        "alike to this encoder. Stop the run (Ctrl-C) and lower optim.lr, lengthen optim.warmup_epochs, or take a "
        "larger optim.batch_images"
    )


def guessing_sentence(guess: Guess | None, loss: float, step: int, epoch: float) -> str | None:
    """What to say of a loss that is still that of predictions which are the same for every image; None if it is not."""
    early = epoch < GUESSING_EPOCHS or step < GUESSING_STEPS
    if guess is None or early or loss < GUESSING_SHARE * guess.loss:
        return None
    return (
        f"at step {step} the loss is still {loss:.2f}, about that of the same prediction for every image "
        f"({guess.loss:.2f}). It can take many epochs to leave that, with sharper targets fewer: {guess.advice}"
    )
