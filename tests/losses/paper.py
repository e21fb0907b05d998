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


def lemma_2(z: Tensor, labels: Tensor, i: int, tau: float, k1: float, k2: float) -> dict[str, dict[int, float]]:
    """The signed terms of equation 11 for anchor i: X, P and Y for its positives, P for its negatives."""
    positives = [p for p in range(len(z)) if p != i and labels[p] == labels[i]]
    negatives = [n for n in range(len(z)) if labels[n] != labels[i]]
    s = (z @ z[i]).double()
    D = torch.zeros((), dtype=torch.float64)
    for p in positives:
        D = D + torch.exp(s[p] / tau) + k1 * torch.exp(-s[p])
    for n in negatives:
        D = D + k2 * torch.exp(s[n] / tau)
    return {
        "X": {p: 1 / len(positives) for p in positives},
        "P": {p: float(torch.exp(s[p] / tau) / D) for p in positives},
        "Y": {p: float(tau * k1 * torch.exp(-s[p]) / D) for p in positives},
        "N": {n: float(k2 * torch.exp(s[n] / tau) / D) for n in negatives},
    }
