"""The pair losses written out on the N×N similarity matrix: the oracle that every faster form is held to.

Shapes: N anchors (all views stacked), which are each other's candidates; sim_NN their dot products;
weights_NN above 0 for positives, 0 for negatives and on the diagonal.
"""

import math

import torch
from torch import Tensor


def tcl_per_anchor(
    sim_NN: Tensor, weights_NN: Tensor, *, temperature: float, k1: float, k2: float, variant: str = "out"
) -> tuple[Tensor, Tensor]:
    """Equations 6 to 8 of the paper, one loss per anchor, and which anchors have a positive.

        for each anchor i:
            D = sum over positives p of exp(s_ip / τ)
              + k1 · sum over positives p of exp(-s_ip)
              + k2 · sum over negatives n of exp(s_in / τ)
            out: loss_i = - weighted mean over p of (s_ip / τ - log D)
            in:  loss_i = - log of the weighted mean over p of (exp(s_ip / τ) / D)

    With k1 = 0 and k2 = 1 these are SupCon's L_out and L_in. Everything is done on logarithms, so a small τ
    or a large k1 cannot overflow. An anchor without a positive gets an exact 0.
    """
    num = sim_NN.shape[0]
    positive_NN = weights_NN > 0
    self_NN = torch.eye(num, dtype=torch.bool, device=sim_NN.device)
    usable_N = positive_NN.any(dim=1)
    # Rows without a positive are computed on zeros, so that no infinity reaches their gradient.
    unusable_N1 = ~usable_N[:, None]
    logits_NN = sim_NN / temperature

    tuned_NN = torch.where(positive_NN, logits_NN, logits_NN + _log(k2))
    log_D_N = _row_logsumexp(tuned_NN, keep_NN=~self_NN, zero_N1=unusable_N1)
    if k1 > 0:
        pull_NN = _log(k1) - sim_NN
        log_D_N = torch.logaddexp(log_D_N, _row_logsumexp(pull_NN, keep_NN=positive_NN, zero_N1=unusable_N1))

    total_N = weights_NN.sum(dim=1).masked_fill(~usable_N, 1.0)
    if variant == "out":
        attraction_N = (weights_NN * logits_NN).sum(dim=1) / total_N
    else:
        log_weights_NN = weights_NN.log()
        weighted_NN = logits_NN + log_weights_NN
        attraction_N = _row_logsumexp(weighted_NN, keep_NN=positive_NN, zero_N1=unusable_N1) - total_N.log()
    return torch.where(usable_N, log_D_N - attraction_N, 0.0), usable_N


def _row_logsumexp(terms_NN: Tensor, *, keep_NN: Tensor, zero_N1: Tensor) -> Tensor:
    return terms_NN.masked_fill(~keep_NN, -math.inf).masked_fill(zero_N1, 0.0).logsumexp(dim=1)


def _log(x: float) -> float:
    return math.log(x) if x > 0 else -math.inf
