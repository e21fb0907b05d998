"""k1 and k2 without a search, from the gradient responses in one short run of SupCon.

The paper's section 4.4 shows what k1 gives and what it takes: positives pull harder, and as k1's term fills the
denominator D, negatives push less, by the factor D_SupCon / D. Accuracy falls where too little of the push is left. So:

    k1: the largest that leaves the negatives nine tenths of their push under SupCon, at every moment of the run
    k2: with it, what makes up for the rest once the run has learnt: negatives push as hard as under SupCon

The untrained network counts as a moment. There positives are not close yet, Σ_p exp(-s_ip) is at its largest, and where
the similarities are low k1's term soon outgrows Σ_n exp(s_in / τ): everything is then drawn together first, which takes
epochs to undo. In a trained network it is Σ_p exp(s_ip / τ) that k1's term is to be small beside.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp, log
from statistics import mean
from typing import NamedTuple

from torch import Tensor

from contune.losses.responses import responses
from contune.tune.trial import Values, rounded

PUSH_LEFT = 0.9
LOWEST_K1, HIGHEST_K1 = 1.0, 1e5
HIGHEST_K2 = 3.0
HALVINGS = 30


class Moment(NamedTuple):
    """Embeddings of a batch, all views stacked, at some step of a run."""

    step: int
    z_ND: Tensor
    groups_N: Tensor
    """Those with the same number are positives of each other."""


@dataclass(frozen=True)
class Advice:
    values: Values
    decisive_step: int
    """The step of the run at which k1 would first take too much."""
    pull: float
    """How hard positives pull, as a multiple of SupCon's, once the run has learnt."""
    push: float
    """How hard negatives push, likewise."""

    def __str__(self) -> str:
        where = "the untrained network" if self.decisive_step == 1 else f"step {self.decisive_step}"
        return (
            f"{self.values}: {where} allows no larger k1; at the end of the run positives pull {self.pull:.2f} and "
            f"negatives push {self.push:.2f} times as hard as under SupCon"
        )


def advise(moments: Sequence[Moment], temperature: float) -> Advice:
    """From moments of a run, the first of them that of the untrained network."""
    limits = [_largest_k1(moment, temperature) for moment in moments]
    k1 = min(limits)
    learnt = moments[len(moments) // 2 :]
    k2 = _bisect(lambda k2: _beside_supcon(learnt, temperature, k1, k2)[1] < 1, 1.0, HIGHEST_K2)
    values = rounded(k1, k2)
    pull, push = _beside_supcon(moments[-1:], temperature, *values)
    return Advice(values, moments[limits.index(k1)].step, pull, push)


def _largest_k1(moment: Moment, temperature: float) -> float:
    def is_allowed(log_k1: float) -> bool:
        return _beside_supcon([moment], temperature, exp(log_k1), 1.0)[1] >= PUSH_LEFT

    return exp(_bisect(is_allowed, log(LOWEST_K1), log(HIGHEST_K1)))


def _beside_supcon(moments: Sequence[Moment], temperature: float, k1: float, k2: float) -> tuple[float, float]:
    """The paper's mean responses of positives and negatives, as multiples of SupCon's; the mean over moments."""
    found = [
        responses(moment.z_ND, moment.groups_N, temperature=temperature, k1=k1, k2=k2, hard=None) for moment in moments
    ]
    pull, push = (
        mean(float(each[name]) / max(float(each[f"supcon_{name}"]), 1e-30) for each in found)
        for name in ("positive_gradient", "negative_gradient")
    )
    return pull, push


def _bisect(holds: Callable[[float], bool], low: float, high: float) -> float:
    """The largest number between for which `holds`, which is so up to some number and not beyond; else an end."""
    if not holds(low):
        return low
    if holds(high):
        return high
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
