"""What a few runs say about many: means with their intervals, and differences between runs of the same seeds."""

from collections.abc import Sequence
from math import sqrt
from statistics import mean, stdev
from typing import NamedTuple

CONFIDENCE = 0.95


class Spread(NamedTuple):
    """A mean and half of its 95 % confidence interval; None for that of a single value."""

    mean: float
    half: float | None = None

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """By Student's t, which is wide for few values."""
        return cls(mean(values), half_interval(values))

    def __str__(self) -> str:
        return f"{self.mean:.2f}" if self.half is None else f"{self.mean:.2f} ± {self.half:.2f}"


class PairedDifference(NamedTuple):
    """How much one thing is above another, from runs in pairs that share what else decides them, such as the seed."""

    mean: float
    half: float | None
    """Of its 95 % confidence interval; None for that of a single pair."""
    p: float | None
    """How often chance alone makes a difference as large, if there is none: the two-sided paired t-test."""
    num: int
    """Pairs."""

    def __str__(self) -> str:
        return f"{self.mean:+.2f}" if self.half is None else f"{self.mean:+.2f} ± {self.half:.2f}"


def paired(a: Sequence[float], b: Sequence[float]) -> PairedDifference:
    """a − b, where a[i] and b[i] belong together; at least one pair.

    Differences that are all the same have no spread to judge them by: p is then 1 where they are 0, and else 0.
    """
    differences = [one - other for one, other in zip(a, b, strict=True)]
    return PairedDifference(mean(differences), half_interval(differences), _p_value(differences), len(differences))


def half_interval(values: Sequence[float]) -> float | None:
    """Half of the 95 % confidence interval of the mean."""
    if len(values) == 1:
        return None
    from scipy.stats import t  # type: ignore[import-untyped]  # comes with scikit-learn, without stubs

    return float(t.ppf((1 + CONFIDENCE) / 2, len(values) - 1)) * stdev(values) / sqrt(len(values))


def _p_value(differences: Sequence[float]) -> float | None:
    if len(differences) == 1:
        return None
    error = stdev(differences) / sqrt(len(differences))
    if error == 0:
        return 1.0 if mean(differences) == 0 else 0.0
    from scipy.stats import t

    return 2 * float(t.sf(abs(mean(differences)) / error, len(differences) - 1))
