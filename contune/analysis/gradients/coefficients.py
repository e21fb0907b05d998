"""The coefficients of lemmas 1 and 2: how much of each candidate there is in an anchor's gradient.

Shapes: R anchors, C candidates; N embeddings that are both.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from contune.analysis.gradients.anchors import Compared, anchors_of, check_knobs, log
from contune.kernels import LossSettings
from contune.losses.checks import check_tensors


class Coefficients(NamedTuple):
    """The terms of equation 11, one for each pair and 0 for pairs that it has no such term for."""

    X_RC: Tensor
    """1 / |P(i)| for a positive (equation 12)."""
    P_RC: Tensor
    """exp(s_ip / τ) / D for a positive (equation 13)."""
    Y_RC: Tensor
    """τ k1 exp(-s_ip) / D for a positive (equation 14)."""
    N_RC: Tensor
    """P_in = k2 exp(s_in / τ) / D for a negative (equation 15)."""

    @property
    def positive_RC(self) -> Tensor:
        """Signed: below 0 a positive is pulled, above 0 it is pushed away."""
        return self.P_RC - self.X_RC - self.Y_RC

    @property
    def signed_RC(self) -> Tensor:
        """c_ij of dL_i/dz_i = (1/τ) Σ_j c_ij z_j."""
        return self.positive_RC + self.N_RC


@torch.no_grad()
def coefficients(
    z: Tensor,
    labels: Tensor | None = None,
    *,
    positives: Tensor | None = None,
    temperature: float = 0.1,
    k1: float = 5000.0,
    k2: float = 1.0,
    variant: str = "out",
    normalize: bool = True,
) -> Coefficients:
    """Lemma 2 of the paper (equations 11 to 15), each term as an (N, N) matrix; arguments as in `tcl_loss`.

        for each anchor i that has a positive:
            D = Σ_p exp(s_ip / τ) + k1 Σ_p exp(-s_ip) + k2 Σ_n exp(s_in / τ)
            for each positive p: X_ip = 1 / |P(i)|; P_ip = exp(s_ip / τ) / D; Y_ip = τ k1 exp(-s_ip) / D
            for each negative n: P_in = k2 exp(s_in / τ) / D
            dL_i/dz_i = (1/τ) (Σ_p (P_ip - X_ip - Y_ip) z_p + Σ_n P_in z_n)

    With k1 = 0, k2 = 1 this is lemma 1 (equations 3 to 6), SupCon's. In the mean over A anchors that have a positive,
    z_j is both an anchor and a candidate, so its gradient is (1 / τA) Σ_i (c_ji + c_ij) z_i.

    An anchor without a positive has no gradient: all its terms are 0. All is done on logarithms, so no τ, k1 or k2
    overflows. With weights as `positives`, X_ip is the weight's share; for `variant="in"` it is that of
    exp(s_ip / τ) among the positives.
    """
    knobs = LossSettings(temperature, k1, k2, variant)
    check_knobs(knobs)
    check_tensors(embeddings=z)
    with torch.autocast(z.device.type, enabled=False):
        compared = anchors_of(z, labels, positives, normalize=normalize).compared(temperature)
        return coefficients_of(compared, knobs)


def coefficients_of(compared: Compared, knobs: LossSettings) -> Coefficients:
    logits_RC = compared.sim_RC / compared.temperature
    log_D_R1 = compared.log_D(knobs)[:, None]
    positive_RC, negative_RC = compared.positive_RC, compared.negative_RC
    return Coefficients(
        X_RC=_targets(compared, logits_RC, knobs.variant),
        P_RC=(logits_RC - log_D_R1).exp().where(positive_RC, 0.0),
        Y_RC=(log(knobs.k1) - compared.sim_RC - log_D_R1).exp().where(positive_RC, 0.0) * compared.temperature,
        N_RC=(logits_RC + log(knobs.k2) - log_D_R1).exp().where(negative_RC, 0.0),
    )


def _targets(compared: Compared, logits_RC: Tensor, variant: str) -> Tensor:
    """X: what share of the pull each positive should have."""
    weights_RC = compared.weights_RC
    if variant == "in":
        highest_R1 = logits_RC.where(compared.positive_RC, -torch.inf).amax(dim=1, keepdim=True)
        weights_RC = weights_RC * (logits_RC - highest_R1).exp().where(compared.positive_RC, 0.0)
    # The smallest positive number in the place of 0: rows without a positive stay 0.
    return weights_RC / weights_RC.sum(dim=1, keepdim=True).clamp(min=torch.finfo(weights_RC.dtype).tiny)


def theorem_1_holds(compared: Compared, knobs: LossSettings, tuned: Coefficients, plain: Coefficients) -> Tensor:
    """Which positives have |X - P^t + Y^t| > |X - P^s|: equation 16, of TCL's and of SupCon's coefficients.

    As |a| > |b| where a - b and a + b have the same sign. In a - b = (P^s - P^t) + Y^t the difference would be lost in
    rounding where k1 is small beside D; it is the product of what D gains and what is known already.
    """
    pull_share_R1 = tuned.Y_RC.sum(dim=1, keepdim=True) / compared.temperature
    negative_share_R1 = plain.N_RC.sum(dim=1, keepdim=True)
    gain_RC = plain.P_RC * pull_share_R1 + (knobs.k2 - 1) * tuned.P_RC * negative_share_R1 + tuned.Y_RC
    both_RC = 2 * tuned.X_RC - plain.P_RC - tuned.P_RC + tuned.Y_RC
    return compared.positive_RC & (gain_RC.sign() * both_RC.sign() > 0)
