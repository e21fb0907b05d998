"""The fast linear probe: logistic regression on cached features, solved to the end instead of trained.

Shapes: N training and M test images, D features, K classes.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

WEIGHT_PENALTY = 1e-4
MAX_ITERATIONS = 200
CONSTANT = 1e-6
"""A deviation up to which a feature is rounding errors, of which a larger scale makes nothing."""


class Logistic(NamedTuple):
    """A fitted probe."""

    mean_D: Tensor
    scale_D: Tensor
    weight_DK: Tensor
    bias_K: Tensor

    def scores(self, features_MD: Tensor) -> Tensor:
        """(M, K) logits."""
        return (features_MD - self.mean_D) / self.scale_D @ self.weight_DK + self.bias_K

    def as_linear(self) -> tuple[Tensor, Tensor]:
        """(K, D) weights and (K,) biases of the features as they are, not standardised."""
        weight_DK = self.weight_DK / self.scale_D[:, None]
        return weight_DK.T, self.bias_K - self.mean_D @ weight_DK


def logistic_scores(
    train_ND: Tensor, labels_N: Tensor, test_MD: Tensor, num_classes: int, *, weight_penalty: float = WEIGHT_PENALTY
) -> Tensor:
    """(M, K) logits of a probe fitted to the training features."""
    return fit_logistic(train_ND, labels_N, num_classes, weight_penalty=weight_penalty).scores(test_MD)


def fit_logistic(
    train_ND: Tensor, labels_N: Tensor, num_classes: int, *, weight_penalty: float = WEIGHT_PENALTY
) -> Logistic:
    """Multinomial logistic regression on standardised features, fitted by L-BFGS.

    Minimises mean cross-entropy + weight_penalty/2 · |W|², which is convex: no seed, no learning rate.
    """
    mean_D = train_ND.mean(dim=0)
    std_D = train_ND.std(dim=0)
    scale_D = torch.where(std_D > CONSTANT, std_D, 1.0)
    x_ND = (train_ND - mean_D) / scale_D
    labels_N = labels_N.to(x_ND.device)
    weight_DK = torch.zeros(x_ND.shape[1], num_classes, device=x_ND.device, requires_grad=True)
    bias_K = torch.zeros(num_classes, device=x_ND.device, requires_grad=True)
    solver = torch.optim.LBFGS(
        [weight_DK, bias_K], max_iter=MAX_ITERATIONS, history_size=20, line_search_fn="strong_wolfe"
    )

    def objective() -> Tensor:
        solver.zero_grad()
        loss = F.cross_entropy(x_ND @ weight_DK + bias_K, labels_N)
        loss = loss + weight_penalty / 2 * weight_DK.square().sum()
        loss.backward()
        return loss

    solver.step(objective)
    return Logistic(mean_D, scale_D, weight_DK.detach(), bias_K.detach())


def logistic_protocol(features: str = "cached frozen features", weight_penalty: float = WEIGHT_PENALTY) -> str:
    return (
        f"logistic regression on {features} (standardised, no augmentation, L-BFGS, weight penalty {weight_penalty:g})"
    )
