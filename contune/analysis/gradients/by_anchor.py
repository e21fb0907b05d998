"""Responses of each anchor by itself, with the terms of lemmas 1 and 2 that they are made of.

Shapes: R anchors, C candidates; N embeddings that are both.
"""

from collections import defaultdict

import torch
from torch import Tensor

from contune.analysis.gradients.anchors import BLOCK_PAIRS, Anchors, Compared, anchors_of, check_knobs
from contune.analysis.gradients.coefficients import coefficients_of
from contune.analysis.gradients.quantities import SUPCON, Quantity, Split, pairs_by_kind, quantities, split_of
from contune.analysis.gradients.responses import HARD_SHARE, check_hard
from contune.kernels import LossSettings
from contune.losses.checks import check_tensors


@torch.no_grad()
def responses_by_anchor(
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
    """What `responses` averages, before it does: numbers (N,), one for each anchor. Arguments as there.

    Returns, with `supcon_` before the name where it is SupCon's on the same embeddings:
        num_positives, num_negatives, num_hard_positives, num_easy_positives, num_hard_negatives, num_easy_negatives.
        X_ip, P_ip, Y_ip: means over the anchor's positives of the terms of lemma 2 (equations 12 to 14).
        P_in: that over its negatives (equation 15). Of SupCon there are P_ip and P_in (equations 5 and 6).
        positive_gradient: mean over its positives of |X_ip - P_ip + Y_ip|.
        negative_gradient: mean over its negatives of P_in, which is all that a negative has.
        hard_positive_gradient, easy_positive_gradient, hard_negative_gradient, easy_negative_gradient: the same of
            these pairs only.
        pushed_away_share, theorem1_share, hard_theorem1_share: of its (hard) positives.

    NaN where an anchor has no such pairs: the means over anchors that `responses` gives are over the others. Its
    shares are of all pairs: means weighted with num_positives (num_hard_positives).
    """
    knobs = LossSettings(temperature, k1, k2)
    check_knobs(knobs)
    check_tensors(embeddings=z)
    check_hard(hard)
    with torch.autocast(z.device.type, enabled=False):
        anchors = anchors_of(z, labels, positives, normalize=normalize)
        split = None if hard is None else split_of(anchors.thinned(BLOCK_PAIRS).compared(temperature), hard)
        return by_anchor(anchors, knobs, split)


def by_anchor(anchors: Anchors, knobs: LossSettings, split: Split | None) -> dict[str, Tensor]:
    columns: defaultdict[str, list[Tensor]] = defaultdict(list)
    for compared in anchors.blocks(knobs.temperature):
        for name, values_R in _of_block(compared, knobs, split).items():
            columns[name].append(values_R)
    return {name: torch.cat(parts) for name, parts in columns.items()}


def _of_block(compared: Compared, knobs: LossSettings, split: Split | None) -> dict[str, Tensor]:
    kinds = pairs_by_kind(compared, split)
    found = {f"num_{kind}s": pairs_RC.sum(dim=1) for kind, pairs_RC in kinds.items()}
    measured = _terms(compared, knobs) | quantities(compared, knobs, kinds)
    return found | {name: _mean(quantity, compared.sim_RC.dtype) for name, quantity in measured.items()}


def _terms(compared: Compared, knobs: LossSettings) -> dict[str, Quantity]:
    positive_RC, negative_RC = compared.positive_RC, compared.negative_RC
    own = coefficients_of(compared, knobs)
    plain = coefficients_of(compared, LossSettings(knobs.temperature, 0.0, 1.0))
    return {
        "X_ip": Quantity(own.X_RC, positive_RC),
        "P_ip": Quantity(own.P_RC, positive_RC),
        "Y_ip": Quantity(own.Y_RC, positive_RC),
        "P_in": Quantity(own.N_RC, negative_RC),
        f"{SUPCON}P_ip": Quantity(plain.P_RC, positive_RC),
        f"{SUPCON}P_in": Quantity(plain.N_RC, negative_RC),
    }


def _mean(quantity: Quantity, dtype: torch.dtype) -> Tensor:
    """Over the pairs of each anchor; NaN where there are none."""
    counts_R = quantity.pairs_RC.sum(dim=1).to(dtype)
    return (quantity.values_RC * quantity.pairs_RC).sum(dim=1) / counts_R
