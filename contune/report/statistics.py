"""Confidence intervals and paired tests over a few runs."""

from collections.abc import Sequence
from math import sqrt
from statistics import mean, stdev
from typing import NamedTuple


class Spread(NamedTuple):
    """A mean and half of its 95 % confidence interval, None for a single value."""

    mean: float
    half: float | None = None

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """With an interval by Student's t, which is wide for few values."""
        if len(values) == 1:
            return cls(values[0])
        from scipy.stats import t  # type: ignore[import-untyped]  # comes with scikit-learn, without stubs

        return cls(mean(values), float(t.ppf(0.975, len(values) - 1)) * stdev(values) / sqrt(len(values)))

    def __str__(self) -> str:
        return f"{self.mean:.2f}" if self.half is None else f"{self.mean:.2f} ± {self.half:.2f}"


class PairedDifference(NamedTuple):
    """The mean difference of pairs of runs that share everything else, such as the seed."""

    mean: float
    half: float | None
    """Half of its 95 % confidence interval, None for a single pair."""
    p: float | None
    """The two-sided p-value of the paired t-test, None for a single pair."""
    num: int
    """How many pairs."""

    def __str__(self) -> str:
        return f"{self.mean:+.2f}" if self.half is None else f"{self.mean:+.2f} ± {self.half:.2f}"


def paired(a: Sequence[float], b: Sequence[float]) -> PairedDifference:
    """a − b over pairs a[i], b[i]; at least one pair.

    If all differences are equal, the test has no spread to work with: p is 1 where they are 0, and else 0.
    """
    differences = [one - other for one, other in zip(a, b, strict=True)]
    average, half = Spread.of(differences)
    if half is None:
        return PairedDifference(average, None, None, 1)
    from scipy.stats import ttest_1samp

    p = float(ttest_1samp(differences, 0.0).pvalue) if half else float(average == 0)
    return PairedDifference(average, half, p, len(differences))


def welch(a: Sequence[float], b: Sequence[float]) -> PairedDifference:
    """mean(a) − mean(b) of runs that are not paired, at least two of each, with the interval of Welch's t-test."""
    from scipy.stats import ttest_ind

    test = ttest_ind(a, b, equal_var=False)
    low, high = test.confidence_interval(0.95)
    return PairedDifference((low + high) / 2, float(high - low) / 2, float(test.pvalue), min(len(a), len(b)))
