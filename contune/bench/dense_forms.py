"""How public reference code computes these losses: the same dense matrices in the same order, in our words.

Value and gradient of the batch mean equal the paper's for single labels where every anchor has a positive, which
is what the benchmark feeds. What is kept on purpose is the cost: how many N×N float matrices are alive, how many
passes are made over them, and where a mask is built. Shapes: N anchors, NN pairs (anchor, candidate).
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def authors_tcl(z: Tensor, labels: Tensor, *, temperature: float, k1: float, k2: float, host_mask: bool) -> Tensor:
    """The form of the paper's code: exponentials of all similarities, float masks, no log-sum-exp."""
    z_ND = F.normalize(z, dim=1)
    sim_NN = z_ND @ z_ND.T
    push_NN = torch.exp(sim_NN / temperature)
    pull_NN = torch.exp(-1 * sim_NN)
    positive_NN, negative_NN = _masks(z, labels, host_mask)
    D_N = (push_NN * positive_NN).sum(dim=1)
    D_N = D_N + k1 * (pull_NN * positive_NN).sum(dim=1) + k2 * (push_NN * negative_NN).sum(dim=1)
    return _mean_over_positives(push_NN, D_N, positive_NN)


def authors_supcon(z: Tensor, labels: Tensor, *, temperature: float, host_mask: bool) -> Tensor:
    """The form of the SupCon in the paper's code."""
    z_ND = F.normalize(z, dim=1)
    push_NN = torch.exp((z_ND @ z_ND.T) / temperature)
    positive_NN, negative_NN = _masks(z, labels, host_mask)
    D_N = (push_NN * positive_NN).sum(dim=1) + (push_NN * negative_NN).sum(dim=1)
    return _mean_over_positives(push_NN, D_N, positive_NN)


def supcontrast(z: Tensor, labels: Tensor, *, temperature: float) -> Tensor:
    """The form of the SupCon paper's code: log-probabilities over all others, then their mean over positives.

    Each matrix has a name, as there, which keeps it alive to the end.
    """
    z_ND = F.normalize(z, dim=1)
    tempered_NN = (z_ND @ z_ND.T) / temperature
    logits_NN = tempered_NN - tempered_NN.max(dim=1, keepdim=True)[0].detach()
    others_NN = _others(z, host_mask=False)
    positive_NN = (labels[:, None] == labels[None, :]).to(z.dtype) * others_NN
    push_NN = torch.exp(logits_NN) * others_NN
    log_probability_NN = logits_NN - push_NN.sum(dim=1, keepdim=True).log()
    return -((positive_NN * log_probability_NN).sum(dim=1) / positive_NN.sum(dim=1)).mean()


def _masks(z: Tensor, labels: Tensor, host_mask: bool) -> tuple[Tensor, Tensor]:
    same_NN = labels[:, None].repeat(1, labels.shape[0]) == labels
    return same_NN * _others(z, host_mask), ~same_NN


def _others(z: Tensor, host_mask: bool) -> Tensor:
    """1 everywhere but on the diagonal. The paper's code builds it on the host and copies it over at every step."""
    where = torch.device("cpu") if host_mask else z.device
    return (1 - torch.eye(z.shape[0], dtype=z.dtype, device=where)).to(z.device)


def _mean_over_positives(push_NN: Tensor, D_N: Tensor, positive_NN: Tensor) -> Tensor:
    """As in the paper's code, entry (i, p) is divided by the D of p, not of i: the same in a sum over all anchors."""
    probability_NN = push_NN / D_N
    return ((-torch.log(probability_NN) * positive_NN).sum(dim=1) / positive_NN.sum(dim=1)).mean()
