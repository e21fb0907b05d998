"""The paper's equations as nested loops over scalars: slow, plain, and the reference for every loss."""

import torch
from torch import Tensor


def tcl_of_anchor(z: Tensor, weights: Tensor, i: int, tau: float, k1: float, k2: float) -> Tensor:
    """Equations 8 and 9; `weights` above 0 marks the positives and weighs them in the mean."""
    positives = [p for p in range(len(z)) if p != i and weights[i, p] > 0]
    negatives = [n for n in range(len(z)) if n != i and not weights[i, n] > 0]
    if not positives:
        return (z[i] * 0).sum()
    D = z.new_zeros(())
    for p in positives:
        D = D + torch.exp(z[i] @ z[p] / tau) + k1 * torch.exp(-(z[i] @ z[p]))
    for n in negatives:
        D = D + k2 * torch.exp(z[i] @ z[n] / tau)
    total, weight = z.new_zeros(()), z.new_zeros(())
    for p in positives:
        total = total + weights[i, p] * torch.log(torch.exp(z[i] @ z[p] / tau) / D)
        weight = weight + weights[i, p]
    return -total / weight


def tcl(z: Tensor, weights: Tensor, tau: float, k1: float, k2: float) -> Tensor:
    """One loss per anchor."""
    return torch.stack([tcl_of_anchor(z, weights, i, tau, k1, k2) for i in range(len(z))])
