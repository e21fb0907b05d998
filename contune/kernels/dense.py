"""The pair losses on the whole similarity matrix: the oracle for every faster form, and twice differentiable.

Shapes: R anchors, C candidates; sim_RC their dot products; weights_RC above 0 for positives, 0 for negatives.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from contune.kernels import APART, LossSettings

UNIT_BOUND = 1.01
"""Upper bound of |similarity| for embeddings that were normalized and then rounded."""


def loss_per_anchor(
    sim_RC: Tensor, weights_RC: Tensor, ignored_RC: Tensor | None, settings: LossSettings
) -> tuple[Tensor, Tensor]:
    """Equations 7 to 9 of the paper, one loss per anchor, and which anchors have one.

        for each anchor i:
            D = sum over positives p of exp(s_ip / τ)
              + k1 · sum over positives p of exp(-s_ip)
              + k2 · sum over negatives n of exp(s_in / τ)
            out: loss_i = - weighted mean over p of (s_ip / τ - log D)
            in:  loss_i = - log of the weighted mean over p of (exp(s_ip / τ) / D)
            auto: as `out`, with k1 · Σ_p exp(s_ip / τ) / Σ_p exp(-s_ip), taken as a constant, for k1
            sincere, dcl: N = k2 · sum over negatives n of exp(s_in / τ)
                 loss_i = - weighted mean over p of (s_ip / τ - log(exp(s_ip / τ - ε) + N)), with ε = ∞ for dcl

    Pairs in `ignored_RC`, such as an anchor with itself, are neither positives nor negatives. The sums are taken on
    logarithms, so a small τ or a large k1 cannot overflow. The loss of an anchor without a positive is exactly 0, in
    the last two without a negative too.
    """
    kept_RC = torch.ones_like(weights_RC, dtype=torch.bool) if ignored_RC is None else ~ignored_RC
    weights_RC, logits_RC = weights_RC * kept_RC, sim_RC / settings.temperature
    log_D_R, attraction_R, usable_R, _ = parts_of_loss(sim_RC, logits_RC, weights_RC, kept_RC, settings)
    loss_R = log_D_R - attraction_R
    if settings.kind == "sincere":
        # log(exp(l - ε) + N) - l = log(1 + exp(log N + ε - l)) - ε, without a difference of large numbers
        each_RC = -F.logsigmoid(logits_RC - settings.epsilon - log_D_R[:, None])
        total_R = weights_RC.sum(dim=1).masked_fill(~usable_R, 1.0)
        loss_R = (weights_RC * each_RC).sum(dim=1) / total_R - settings.epsilon
    return torch.where(usable_R, loss_R, 0.0), usable_R


def parts_of_loss(
    sim_RC: Tensor, logits_RC: Tensor, weights_RC: Tensor, kept_RC: Tensor, settings: LossSettings
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Of each anchor log D, the mean of s / τ over positives (inside the logarithm for `in`), if it is usable, log k1.

    logits_RC is s / τ. It is an argument because the derivatives by s and s / τ are the terms of the paper's lemma 2.
    """
    positive_RC = weights_RC > 0
    usable_R = positive_RC.any(dim=1)
    if settings.kind in APART:
        usable_R &= (kept_RC & ~positive_RC).any(dim=1)
    # Rows without a positive are computed on zeros, so that no infinity reaches their gradient.
    unusable_R1 = ~usable_R[:, None]
    tuned_RC = torch.where(positive_RC, logits_RC, logits_RC + log_or_inf(settings.k2))
    in_D_RC = kept_RC & ~positive_RC if settings.kind in APART else kept_RC
    log_D_R = row_logsumexp(tuned_RC, in_D_RC, unusable_R1)
    log_k1_R = torch.full_like(log_D_R, log_or_inf(settings.k1))
    if settings.kind == "auto":
        log_A_R = row_logsumexp(-sim_RC, positive_RC, unusable_R1)
        log_k1_R += (row_logsumexp(logits_RC, positive_RC, unusable_R1) - log_A_R).detach()
        log_D_R = torch.logaddexp(log_D_R, log_k1_R + log_A_R)
    elif settings.k1 > 0:
        log_D_R = torch.logaddexp(log_D_R, row_logsumexp(log_or_inf(settings.k1) - sim_RC, positive_RC, unusable_R1))

    total_R = weights_RC.sum(dim=1).masked_fill(~usable_R, 1.0)
    if settings.kind == "in":
        # log 1 where there is no weight: the derivative of log at 0 would be 0 times infinity.
        log_weights_RC = torch.where(positive_RC, weights_RC, 1.0).log()
        attraction_R = row_logsumexp(logits_RC + log_weights_RC, positive_RC, unusable_R1) - total_R.log()
    else:
        attraction_R = (weights_RC * logits_RC).sum(dim=1) / total_R
    return log_D_R, attraction_R, usable_R, log_k1_R


def row_logsumexp(terms_RC: Tensor, kept_RC: Tensor, zero_R1: Tensor) -> Tensor:
    return terms_RC.masked_fill(~kept_RC, -math.inf).masked_fill(zero_R1, 0.0).logsumexp(dim=1)


def log_or_inf(x: float) -> float:
    return math.log(x) if x > 0 else -math.inf


def exponent_is_safe(num_columns: int, settings: LossSettings, dtype: torch.dtype = torch.float32) -> bool:
    """Whether exp(s/τ) and its sums fit `dtype` as they are. If not, backends subtract a maximum first.

    The limits leave room for a factor of e^9 or more in the formula, and in `in` for weights of up to 2^28 (`fused`).
    """
    if not settings.normalize:
        return False
    limit = (700.0 if dtype == torch.float64 else 75.0) - (20.0 if settings.kind == "in" else 0.0)
    relative = settings.kind == "auto"
    factor = max(settings.k2, 1.0 + settings.k1 if relative else 1.0)
    attracted = UNIT_BOUND / settings.temperature + math.log(max(num_columns * factor, 2.0))
    pulled = UNIT_BOUND + math.log(max(num_columns * (0.0 if relative else settings.k1), 2.0))
    return max(attracted, pulled) < limit
