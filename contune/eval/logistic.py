"""The fast linear probe: logistic regression on cached features, solved to the end instead of trained."""

import torch
import torch.nn.functional as F
from torch import Tensor

WEIGHT_PENALTY = 1e-4
MAX_ITERATIONS = 200


def logistic_scores(
    train_ND: Tensor,
    labels_N: Tensor,
    test_MD: Tensor,
    num_classes: int,
    *,
    weight_penalty: float = WEIGHT_PENALTY,
) -> Tensor:
    """(M, K) logits of multinomial logistic regression on standardised features, fitted by L-BFGS.

    Minimises mean cross-entropy + weight_penalty/2 · |W|², which is convex: no seed, no learning rate.
    """
    mean_D = train_ND.mean(dim=0)
    scale_D = train_ND.std(dim=0).clamp(min=1e-6)
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
    with torch.no_grad():
        return (test_MD - mean_D) / scale_D @ weight_DK + bias_K


def logistic_protocol(features: str = "cached frozen features", weight_penalty: float = WEIGHT_PENALTY) -> str:
    return (
        f"logistic regression on {features} (standardised, no augmentation, L-BFGS, weight penalty {weight_penalty:g})"
    )
