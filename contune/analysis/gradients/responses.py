"""Coefficients averaged over a batch, block by block, for TCL and SupCon on the same embeddings.

Shapes: R anchors, C candidates.
"""

from collections import defaultdict

import torch
from torch import Tensor

from contune.analysis.gradients.anchors import BLOCK_PAIRS, Anchors, anchors_of, check_knobs
from contune.analysis.gradients.quantities import SHARE, Quantity, Split, pairs_by_kind, quantities, split_of
from contune.errors import UserError
from contune.kernels import LossSettings
from contune.losses.checks import check_tensors

HARD_SHARE = 0.25


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
    knobs = LossSettings(temperature, k1, k2)
    check_knobs(knobs)
    check_tensors(embeddings=z)
    check_hard(hard)
    with torch.autocast(z.device.type, enabled=False):
        anchors = anchors_of(z, labels, positives, normalize=normalize)
        split = None if hard is None else split_of(anchors.thinned(BLOCK_PAIRS).compared(temperature), hard)
        return ratios(sums_and_counts(anchors, knobs, split=split))


def check_hard(hard: float | None) -> None:
    if hard is not None and not 0 < hard <= 0.5:
        raise UserError(f"hard must be a share above 0 and at most 0.5, got {hard:g}; 0.25 is the hardest quarter")


def ratios(totals: dict[str, Tensor]) -> dict[str, Tensor]:
    """Means, from sums and counts; 0 of nothing."""
    return {name: total[0] / total[1].clamp(min=1) for name, total in totals.items()}


def sums_and_counts(
    anchors: Anchors, knobs: LossSettings, *, split: Split | None, beside_supcon: bool = True
) -> dict[str, Tensor]:
    """Of what `responses` gives, two numbers each. The host does not wait for any of it."""
    totals: defaultdict[str, Tensor] = defaultdict(lambda: anchors.x_RD.new_zeros(2))
    for compared in anchors.blocks(knobs.temperature):
        found = quantities(compared, knobs, pairs_by_kind(compared, split), beside_supcon=beside_supcon)
        for name, quantity in found.items():
            total = _over_pairs(quantity) if name.endswith(SHARE) else _over_anchors(quantity)
            totals[name] = totals[name] + total
    return dict(totals)


def _over_anchors(quantity: Quantity) -> Tensor:
    """Sum over anchors of the mean over an anchor's pairs, and how many anchors have such pairs."""
    counts_R = quantity.pairs_RC.sum(dim=1)
    means_R = (quantity.values_RC * quantity.pairs_RC).sum(dim=1) / counts_R.clamp(min=1)
    return torch.stack([means_R.sum(), (counts_R > 0).sum()])


def _over_pairs(quantity: Quantity) -> Tensor:
    """Sum over such pairs, and how many there are."""
    return torch.stack([(quantity.values_RC * quantity.pairs_RC).sum(), quantity.pairs_RC.sum()])
