"""Weighted nearest neighbours on frozen features: the measure that trains nothing."""

import torch
import torch.nn.functional as F
from torch import Tensor

CHUNK = 1024
"""Test rows compared at once, so that the train × test matrix never exists."""


@torch.no_grad()
def knn_scores(
    train_ND: Tensor,
    labels_N: Tensor,
    test_MD: Tensor,
    num_classes: int,
    *,
    k: int = 20,
    temperature: float = 0.1,
) -> Tensor:
    """(M, K) votes: the k training images of highest cosine similarity s, each voting exp(s / temperature).

    The protocol of Wu et al. 2018, with the values most self-supervised papers use. A training set smaller
    than k votes as a whole.
    """
    k = min(k, len(train_ND))
    train_ND, labels_N = F.normalize(train_ND, dim=1), labels_N.to(train_ND.device)
    parts = []
    for test_CD in F.normalize(test_MD, dim=1).split(CHUNK):
        nearest = (test_CD @ train_ND.T).topk(k, dim=1)
        votes_CK = test_CD.new_zeros(len(test_CD), num_classes)
        # Relative to the nearest, so that a small temperature cannot overflow.
        weights_Ck = ((nearest.values - nearest.values[:, :1]) / temperature).exp()
        parts.append(votes_CK.scatter_add_(1, labels_N[nearest.indices], weights_Ck))
    return torch.cat(parts)


def knn_protocol(k: int, temperature: float, features: str = "frozen features") -> str:
    return f"weighted kNN on {features}, cosine, k={k}, T={temperature:g}, no augmentation"
