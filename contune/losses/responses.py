"""The paper's gradient responses: how strongly positives pull an anchor and negatives push it (lemmas 1 and 2).

Training logs them (`logged_responses`), `contune analyze` compares k1 and k2 with them (`response_sums`).
`coefficients` returns every term as an (N, N) matrix.

Shapes: R anchors, C candidates, N embeddings that are both, D embedding size, K pairs.
"""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from contune import distributed
from contune.errors import UserError, check_known
from contune.kernels import LossSettings, dense, normalized
from contune.losses.contrastive import VARIANTS, Number, tcl_settings
from contune.losses.dispatch import check_pairs, check_settings, overlap

BLOCK_PAIRS = 2**22
"""Pairs held in memory at a time: a whole batch of 2,048 embeddings."""
HARD_SHARE = 0.25
SUPCON = "supcon_"
"""Prefix of SupCon's responses on the same embeddings."""
LOGGED = ("positive_gradient", "negative_gradient", "theorem1_share", "hard_theorem1_share")


class Coefficients(NamedTuple):
    """The terms of equation 11 for each pair; 0 where a pair has no such term."""

    X_RC: Tensor
    """1 / |P(i)| for a positive (equation 12)."""
    P_RC: Tensor
    """exp(s_ip / τ) / D for a positive (equation 13)."""
    Y_RC: Tensor
    """The part of k1's term for a positive (equation 14)."""
    N_RC: Tensor
    """P_in = k2 exp(s_in / τ) / D for a negative (equation 15)."""

    @property
    def positive_RC(self) -> Tensor:
        """Signed: a positive below 0 is pulled, above 0 it is pushed away."""
        return self.P_RC - self.X_RC - self.Y_RC

    @property
    def signed_RC(self) -> Tensor:
        """c_ij of dL_i/dz_i = (1/τ) Σ_j c_ij z_j."""
        return self.positive_RC + self.N_RC


class PairBlock(NamedTuple):
    """Some anchors with all their candidates. Anchors without a positive have no pairs."""

    sim_RC: Tensor
    weights_RC: Tensor
    """Above 0 for positives, 0 elsewhere."""
    kept_RC: Tensor
    positive_RC: Tensor
    negative_RC: Tensor

    def log_k1(self, settings: LossSettings) -> Tensor:
        """(R,) logarithms of each anchor's k1."""
        logits_RC = self.sim_RC / settings.temperature
        return dense.parts_of_loss(self.sim_RC, logits_RC, self.weights_RC, self.kept_RC, settings)[3]

    def coefficients(self, settings: LossSettings) -> Coefficients:
        """Derivatives of the oracle: of log D by s / τ are P and N, by s is Y, and of the mean by s / τ is X."""
        settings = check_settings(settings)
        with torch.enable_grad():
            sim_RC = self.sim_RC.detach().requires_grad_()
            logits_RC = (self.sim_RC / settings.temperature).detach().requires_grad_()
            log_D_R, mean_R, *_ = dense.parts_of_loss(sim_RC, logits_RC, self.weights_RC, self.kept_RC, settings)
            share_RC, pull_RC = torch.autograd.grad(log_D_R.sum(), (logits_RC, sim_RC), materialize_grads=True)
            (X_RC,) = torch.autograd.grad(mean_R.sum(), logits_RC)
        return Coefficients(
            X_RC=X_RC,
            P_RC=share_RC.where(self.positive_RC, 0.0),
            Y_RC=-settings.temperature * pull_RC,
            N_RC=share_RC.where(self.negative_RC, 0.0),
        )

    def kinds(self, hard: float | None = None) -> dict[str, Tensor]:
        """Masks of positive and negative pairs and, for a share `hard`, of the hard and easy ones among them."""
        masks = {"positive": self.positive_RC, "negative": self.negative_RC}
        if hard is None:
            return masks
        for kind, low, high in (("positive", "hard", "easy"), ("negative", "easy", "hard")):
            sim_K = F.pad(self.sim_RC.where(masks[kind], math.inf).flatten().sort().values, (0, 1))  # its own first
            num = masks[kind].sum()
            few = (hard * num.double()).ceil().long()
            lowest, highest = sim_K.take((few - 1).clamp(min=0)), sim_K.take((num - few).clamp(min=0))
            masks[f"{low}_{kind}"] = masks[kind] & (self.sim_RC <= lowest)
            masks[f"{high}_{kind}"] = masks[kind] & (self.sim_RC >= highest)
        return masks


def pair_block(x_RD: Tensor, y_CD: Tensor, weights_RC: Tensor, own_R: Tensor) -> PairBlock:
    """Compare anchors x with candidates y. Anchor i itself is candidate own_R[i] and no pair."""
    sim_RC = x_RD @ y_CD.T
    other_RC = own_R[:, None] != torch.arange(len(y_CD), device=sim_RC.device)
    weights_RC = weights_RC.to(sim_RC.dtype) * other_RC
    positive_RC = weights_RC > 0
    negative_RC = ~positive_RC & other_RC & positive_RC.any(dim=1, keepdim=True)
    return PairBlock(sim_RC, weights_RC, positive_RC | negative_RC, positive_RC, negative_RC)


def batch_block(
    z: Tensor,
    labels: Tensor | None,
    *,
    positives: Tensor | None = None,
    normalize: bool = True,
    every: int | None = None,
) -> PairBlock:
    """Each n-th embedding against all, with n = `every`; None gives about BLOCK_PAIRS pairs."""
    z, labels, positives, *_ = check_pairs(z, labels, positives)
    z_ND, _ = normalized(z.detach().clone() if z.is_inference() else z.detach(), normalize)
    rows = slice(None, None, every or anchor_step(len(z), len(z)))
    own_R = torch.arange(len(z), device=z.device)[rows]
    with torch.autocast(z.device.type, enabled=False):
        weights_RC = overlap(labels[rows], labels) if positives is None else positives[rows]
        return pair_block(z_ND[rows], z_ND, weights_RC, own_R)


@torch.inference_mode(False)
@torch.no_grad()
def coefficients(
    z: Tensor,
    labels: Tensor | None = None,
    *,
    positives: Tensor | None = None,
    temperature: float = 0.1,
    k1: Number = "auto",
    k2: Number = "auto",
    r: float = 0.3,
    variant: str = "out",
    normalize: bool = True,
) -> Coefficients:
    """Lemma 2 of the paper (equations 11 to 15), each term as an (N, N) matrix; arguments as in `tcl_loss`.

        for each anchor i that has a positive, with D as in `tcl_loss`:
            for each positive p: X_ip = 1 / |P(i)|; P_ip = exp(s_ip / τ) / D; Y_ip from the term of k1
            for each negative n: P_in = k2 exp(s_in / τ) / D
            dL_i/dz_i = (1/τ) (Σ_p (P_ip - X_ip - Y_ip) z_p + Σ_n P_in z_n)

    With k1 = 0 and k2 = 1 this is lemma 1 (equations 3 to 6), SupCon's. In the mean over A anchors that have a
    positive, z_j is both anchor and candidate, so its gradient is (1 / τA) Σ_i (c_ji + c_ij) z_i.

    All terms of an anchor without a positive are 0. With weights as `positives`, X_ip is the weight's share. For
    `variant="in"`, the terms are those of `supcon_loss`, and X_ip is the share of exp(s_ip / τ) among the positives.
    """
    check_known("variant", variant, VARIANTS)
    block = batch_block(z, labels, positives=positives, normalize=normalize, every=1)
    supcon_in = LossSettings(temperature, 0.0, 1.0, "in")
    return block.coefficients(supcon_in if variant == "in" else tcl_settings(temperature, k1, k2, r))


@torch.inference_mode(False)
@torch.no_grad()
def responses(
    z: Tensor,
    labels: Tensor | None = None,
    *,
    positives: Tensor | None = None,
    temperature: float = 0.1,
    k1: Number = "auto",
    k2: Number = "auto",
    r: float = 0.3,
    normalize: bool = True,
    hard: float | None = HARD_SHARE,
) -> dict[str, Tensor]:
    """Mean gradient responses of TCL, and of SupCon on the same embeddings.

        for each anchor i that has a positive, with the terms of lemma 2 (see `coefficients`):
            positive_i = mean over its positives p of |X_ip - P_ip + Y_ip|     (the two sides of equation 16)
            negative_i = mean over its negatives n of P_in
        positive_gradient = mean over anchors of positive_i; negative_gradient of negative_i

    Args: as in `tcl_loss`, and
        hard: the hard positives are this share of the batch's positive pairs, those of the lowest similarity; the
            easy ones are those of the highest. For negatives it is the other way round. None leaves both out. The
            paper calls a positive hard near similarity 0 and easy near 1; quarters exist at any time of training.

    Returns scalars on the device. For TCL, and with the prefix `supcon_` for SupCon:
        positive_gradient, negative_gradient: the paper's mean responses, as above.
        hard_positive_gradient, easy_positive_gradient, hard_negative_gradient, easy_negative_gradient: the same over
            these pairs only, and over the anchors that have any.
        pushed_away_share: the share of positive pairs whose coefficient has a negative's sign (P_ip > X_ip + Y_ip).
    and for the two losses together
        theorem1_share, hard_theorem1_share: the share of all (of hard) positive pairs for which TCL's response is
            larger than SupCon's: |X - P + Y| > |X - P|, theorem 1, equation 16. It holds where X >= P. Where P > X, for
            positives that SupCon pushes away, it can fail, also at a low similarity.

    A mean over nothing is 0. Beyond 4 million pairs (2,048 embeddings), evenly spaced anchors stand for all.
    """
    if hard is not None and not 0 < hard <= 0.5:
        raise UserError(f"hard must be a share above 0 and at most 0.5, got {hard:g}; 0.25 is the hardest quarter")
    block = batch_block(z, labels, positives=positives, normalize=normalize)
    return means(response_sums(block, block.kinds(hard), tcl_settings(temperature, k1, k2, r)))


@torch.no_grad()
def logged_responses(z_ND: Tensor, groups_N: Tensor, knobs: LossSettings, *, supcon: bool) -> dict[str, Tensor]:
    """What training logs of a batch: `responses` of the global batch, with this process's rows as anchors.

    Members of one group are positives. The host never waits for the device. Beyond 4 million pairs (2,048 embeddings)
    anchors are evenly spaced rows. `supcon` adds SupCon's responses and theorem 1; each process has its hard positives.
    """
    z_ND = normalized(z_ND, True)[0]
    y_CD, groups_C = distributed.gather(z_ND), distributed.gather(groups_N)
    rows = slice(None, None, anchor_step(len(z_ND), len(y_CD)))
    own_N = torch.arange(len(z_ND), device=z_ND.device) + distributed.rank() * len(z_ND)
    block = pair_block(z_ND[rows], y_CD, overlap(groups_N[rows], groups_C), own_N[rows])
    totals = response_sums(block, block.kinds(HARD_SHARE if supcon else None), knobs, supcon=supcon)
    totals = {name: total for name, total in totals.items() if name.removeprefix(SUPCON) in LOGGED}
    over_ranks_K2 = distributed.total(torch.stack(list(totals.values())))
    return means(dict(zip(totals, over_ranks_K2, strict=True)))


def anchor_step(num_anchors: int, num_candidates: int) -> int:
    """Taking each n-th anchor gives about BLOCK_PAIRS pairs; returns n."""
    return max(1, math.ceil(num_anchors * num_candidates / BLOCK_PAIRS))


def means(totals: dict[str, Tensor]) -> dict[str, Tensor]:
    """Sums divided by counts; 0 where the count is 0."""
    return {name: total[0] / total[1].clamp(min=1) for name, total in totals.items()}


def response_sums(
    block: PairBlock, kinds: dict[str, Tensor], settings: LossSettings, *, supcon: bool = True
) -> dict[str, Tensor]:
    """What `responses` returns as (sum, count): over anchors of means over their pairs; for shares over pairs."""
    totals: dict[str, Tensor] = {}

    def add(name: str, values_RC: Tensor, pairs_RC: Tensor) -> None:
        if name.endswith("_share"):
            totals[name] = torch.stack([(values_RC * pairs_RC).sum(), pairs_RC.sum()]).to(block.sim_RC.dtype)
            return
        counts_R = pairs_RC.sum(dim=1)
        means_R = (values_RC * pairs_RC).sum(dim=1) / counts_R.clamp(min=1)
        totals[name] = torch.stack([means_R.sum(), (counts_R > 0).sum()])

    tuned = block.coefficients(settings)
    plain = block.coefficients(LossSettings(settings.temperature, 0.0, 1.0)) if supcon else None
    for prefix, terms in (("", tuned), (SUPCON, plain)):
        if terms is not None:
            signed_RC = terms.positive_RC
            for kind, pairs_RC in kinds.items():
                add(f"{prefix}{kind}_gradient", signed_RC.abs() if "positive" in kind else terms.N_RC, pairs_RC)
            add(f"{prefix}pushed_away_share", signed_RC > 0, kinds["positive"])
    if plain is not None:
        holds_RC = tuned.positive_RC.abs() > plain.positive_RC.abs()  # equation 16
        for prefix in ("", "hard_"):
            if f"{prefix}positive" in kinds:
                add(f"{prefix}theorem1_share", holds_RC, kinds[f"{prefix}positive"])
    return totals
