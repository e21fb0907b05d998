"""What is measured of the pairs of a block of anchors: by name, the values and which pairs they are of.

Shapes: R anchors, C candidates, K pairs.
"""

from math import ceil
from typing import NamedTuple

from torch import Tensor

from contune.analysis.gradients.anchors import Compared
from contune.analysis.gradients.coefficients import Coefficients, coefficients_of, theorem_1_holds
from contune.kernels import LossSettings

SUPCON = "supcon_"
"""Before the names of what SupCon has on the same embeddings."""
SHARE = "_share"
"""How the names of shares of pairs end; of the others there is a mean over anchors."""


class Quantity(NamedTuple):
    """One number of every pair."""

    values_RC: Tensor
    pairs_RC: Tensor
    """Where it is a number at all."""


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


def pairs_by_kind(compared: Compared, split: Split | None) -> dict[str, Tensor]:
    """Which pairs are positive and negative and, of these, hard and easy."""
    sim_RC, positive_RC, negative_RC = compared.sim_RC, compared.positive_RC, compared.negative_RC
    found = {"positive": positive_RC, "negative": negative_RC}
    if split is not None:
        found["hard_positive"] = positive_RC & (sim_RC <= split.hard_positive)
        found["easy_positive"] = positive_RC & (sim_RC >= split.easy_positive)
        found["hard_negative"] = negative_RC & (sim_RC >= split.hard_negative)
        found["easy_negative"] = negative_RC & (sim_RC <= split.easy_negative)
    return found


def quantities(
    compared: Compared, knobs: LossSettings, kinds: dict[str, Tensor], *, beside_supcon: bool = True
) -> dict[str, Quantity]:
    """Of what `responses` gives, under its names; `kinds` are the pairs by kind."""
    own = coefficients_of(compared, knobs)
    found = _of_loss(own, kinds)
    if beside_supcon:
        plain = coefficients_of(compared, LossSettings(knobs.temperature, 0.0, 1.0))
        found |= {f"{SUPCON}{name}": quantity for name, quantity in _of_loss(plain, kinds).items()}
        holds_RC = theorem_1_holds(compared, knobs, own, plain)
        found |= {
            f"{kind.removesuffix('positive')}theorem1{SHARE}": Quantity(holds_RC, pairs_RC)
            for kind, pairs_RC in kinds.items()
            if kind in ("positive", "hard_positive")
        }
    return found


def _of_loss(terms: Coefficients, kinds: dict[str, Tensor]) -> dict[str, Quantity]:
    signed_RC, push_RC = terms.positive_RC, terms.N_RC
    pull_RC = signed_RC.abs()
    found = {
        f"{kind}_gradient": Quantity(pull_RC if kind.endswith("positive") else push_RC, pairs_RC)
        for kind, pairs_RC in kinds.items()
    }
    return found | {f"pushed_away{SHARE}": Quantity(signed_RC > 0, kinds["positive"])}
