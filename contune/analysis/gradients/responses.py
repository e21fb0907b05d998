"""Coefficients averaged over a batch, block by block, for TCL and SupCon on the same embeddings.

Shapes: R anchors, C candidates.
"""

from collections import defaultdict
from math import ceil
from typing import NamedTuple

import torch
from torch import Tensor

from contune.analysis.gradients.anchors import BLOCK_PAIRS, Anchors, Compared, anchors_of, check_knobs
from contune.analysis.gradients.coefficients import Coefficients, coefficients_of, theorem_1_holds
from contune.errors import UserError
from contune.kernels.problem import Knobs

HARD_SHARE = 0.25


class Split(NamedTuple):
    """Similarities at which pairs become hard and easy."""

    hard_positive: Tensor
    """A positive at or below it is hard."""
    easy_positive: Tensor
    """A positive at or above it is easy."""
    easy_negative: Tensor
    """A negative at or below it is easy."""
    hard_negative: Tensor
    """A negative at or above it is hard."""


@torch.no_grad()
def responses(
    z: Tensor,
    labels: Tensor | None = None,
    *,
    positives: Tensor | None = None,
    temperature: float = 0.1,
    k1: float = 5000.0,
    k2: float = 1.0,
    normalize: bool = True,
    hard: float | None = HARD_SHARE,
) -> dict[str, Tensor]:
    """How strongly positives pull and negatives push under TCL, and under SupCon on the same embeddings.

        for each anchor i that has a positive, with the terms of lemma 2 (see `coefficients`):
            positive_i = mean over its positives p of |X_ip - P_ip + Y_ip|     (the two sides of equation 16)
            negative_i = mean over its negatives n of P_in
        positive_gradient = mean over anchors of positive_i; negative_gradient of negative_i

    Args: as in `tcl_loss`, and
        hard: hard positives are the quarter (0.25) of the batch's positive pairs with the lowest similarity, easy ones
            that with the highest; of negatives it is the other way round. None leaves them out. The paper calls a
            positive hard near similarity 0 and easy near 1; quarters are there at any time of training.

    Returns numbers that are still on the device. For TCL, and with `supcon_` before the name for SupCon:
        positive_gradient, negative_gradient: the paper's mean responses, as above.
        hard_positive_gradient, easy_positive_gradient, hard_negative_gradient, easy_negative_gradient: the same of
            these pairs only, over the anchors that have any.
        pushed_away_share: of positive pairs whose coefficient has the sign of a negative's (P_ip > X_ip + Y_ip).
    and of both
        theorem1_share, hard_theorem1_share: of all positive pairs, and of the hard ones, the share for which TCL's
            response is larger than SupCon's (theorem 1, equation 16). The proof takes P_ip ≤ X_ip for granted, which
            holds for hard positives; where SupCon already pushes a positive away it may fail.

    A mean over nothing is 0. No more than a block of 4 million pairs is held at a time. Where there are more, the
    similarities that part hard from easy are taken from evenly spaced anchors.
    """
    knobs = Knobs(temperature, k1, k2)
    check_knobs(knobs)
    if hard is not None and not 0 < hard <= 0.5:
        raise UserError(f"hard must be a share above 0 and at most 0.5, got {hard:g}; 0.25 is the hardest quarter")
    with torch.autocast(z.device.type, enabled=False):
        anchors = anchors_of(z, labels, positives, normalize=normalize)
        split = None if hard is None else split_of(anchors.thinned(BLOCK_PAIRS).compared(temperature), hard)
        return ratios(sums_and_counts(anchors, knobs, split=split))


def ratios(totals: dict[str, Tensor]) -> dict[str, Tensor]:
    """Means, from sums and counts; 0 of nothing."""
    return {name: total[0] / total[1].clamp(min=1) for name, total in totals.items()}


def sums_and_counts(
    anchors: Anchors, knobs: Knobs, *, split: Split | None, beside_supcon: bool = True
) -> dict[str, Tensor]:
    """Of what `responses` gives, two numbers each. The host does not wait for any of it."""
    totals: defaultdict[str, Tensor] = defaultdict(lambda: anchors.x_RD.new_zeros(2))
    supcon = Knobs(knobs.temperature, 0.0, 1.0)
    for compared in anchors.blocks(knobs.temperature):
        own = coefficients_of(compared, knobs)
        found = _response(compared, own, split)
        if beside_supcon:
            plain = coefficients_of(compared, supcon)
            found |= {f"supcon_{name}": total for name, total in _response(compared, plain, split).items()}
            found |= _theorem_1(compared, theorem_1_holds(compared, knobs, own, plain), split)
        for name, total in found.items():
            totals[name] = totals[name] + total
    return dict(totals)


def split_of(compared: Compared, hard: float) -> Split:
    """Of all positives together, and of all negatives together; 0 where there are none."""
    lower, upper = (_ends(compared.sim_RC[mask_RC], hard) for mask_RC in (compared.positive_RC, compared.negative_RC))
    return Split(*lower, *upper)


def _ends(similarities_K: Tensor, share: float) -> tuple[Tensor, Tensor]:
    """The similarities between which all but the lowest and the highest `share` lie."""
    if not len(similarities_K):
        return similarities_K.new_zeros(()), similarities_K.new_zeros(())
    ordered_K = similarities_K.sort().values
    num = ceil(share * len(ordered_K))
    return ordered_K[num - 1], ordered_K[-num]


def _response(compared: Compared, terms: Coefficients, split: Split | None) -> dict[str, Tensor]:
    """Sums and counts, by name."""
    signed_RC, push_RC = terms.positive_RC, terms.N_RC
    pull_RC, positive_RC, negative_RC = signed_RC.abs(), compared.positive_RC, compared.negative_RC
    found = {
        "positive_gradient": _over_anchors(pull_RC, positive_RC),
        "negative_gradient": _over_anchors(push_RC, negative_RC),
        "pushed_away_share": _over_pairs(signed_RC > 0, positive_RC),
    }
    if split is not None:
        low_RC, high_RC = compared.sim_RC <= split.hard_positive, compared.sim_RC >= split.easy_positive
        found["hard_positive_gradient"] = _over_anchors(pull_RC, positive_RC & low_RC)
        found["easy_positive_gradient"] = _over_anchors(pull_RC, positive_RC & high_RC)
        low_RC, high_RC = compared.sim_RC <= split.easy_negative, compared.sim_RC >= split.hard_negative
        found["hard_negative_gradient"] = _over_anchors(push_RC, negative_RC & high_RC)
        found["easy_negative_gradient"] = _over_anchors(push_RC, negative_RC & low_RC)
    return found


def _theorem_1(compared: Compared, holds_RC: Tensor, split: Split | None) -> dict[str, Tensor]:
    found = {"theorem1_share": _over_pairs(holds_RC, compared.positive_RC)}
    if split is not None:
        hard_RC = compared.positive_RC & (compared.sim_RC <= split.hard_positive)
        found["hard_theorem1_share"] = _over_pairs(holds_RC, hard_RC)
    return found


def _over_anchors(values_RC: Tensor, mask_RC: Tensor) -> Tensor:
    """Sum over anchors of the mean over an anchor's pairs, and how many anchors have such pairs."""
    counts_R = mask_RC.sum(dim=1)
    means_R = (values_RC * mask_RC).sum(dim=1) / counts_R.clamp(min=1)
    return torch.stack([means_R.sum(), (counts_R > 0).sum()])


def _over_pairs(values_RC: Tensor, mask_RC: Tensor) -> Tensor:
    """Sum over such pairs, and how many there are."""
    return torch.stack([(values_RC * mask_RC).sum(), mask_RC.sum()])
