"""The paper's equations as nested loops over scalars: slow, plain, and the reference for every loss."""

import torch
from torch import Tensor


def tcl_of_anchor(z: Tensor, weights: Tensor, i: int, tau: float, k1: float | Tensor, k2: float) -> Tensor:
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


def auto_k1(z: Tensor, weights: Tensor, i: int, tau: float, r: float) -> Tensor:
    """r P / A of an anchor, as a constant."""
    s = [z[i] @ z[p] for p in range(len(z)) if p != i and weights[i, p] > 0]
    P, A = z.new_zeros(()), z.new_zeros(())
    for s_p in s:
        P, A = P + torch.exp(s_p / tau), A + torch.exp(-s_p)
    return (r * P / A).detach() if s else A


def auto(z: Tensor, weights: Tensor, tau: float, r: float, k2: float | None = None) -> Tensor:
    """TCL with k1 = r P / A, and k2 = 1 + r unless given."""
    k2 = 1 + r if k2 is None else k2
    k1 = [auto_k1(z, weights, i, tau, r) for i in range(len(z))]
    return torch.stack([tcl_of_anchor(z, weights, i, tau, k1[i], k2) for i in range(len(z))])


def eps_supinfonce(z: Tensor, weights: Tensor, tau: float, epsilon: float) -> Tensor:
    """One loss per anchor: SINCERE at ε = 0, supervised DCL at infinity."""
    losses = []
    for i in range(len(z)):
        positives = [p for p in range(len(z)) if p != i and weights[i, p] > 0]
        N = sum(torch.exp(z[i] @ z[n] / tau) for n in range(len(z)) if n != i and not weights[i, n] > 0)
        total, weight = z.new_zeros(()), z.new_zeros(())
        for p in positives:
            s = z[i] @ z[p] / tau
            total = total + weights[i, p] * (torch.log(torch.exp(s - epsilon) + N) - s)
            weight = weight + weights[i, p]
        losses.append(total / weight if positives and isinstance(N, Tensor) else (z[i] * 0).sum())
    return torch.stack(losses)
