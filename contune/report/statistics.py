"""Confidence intervals: over a few runs, over pairs of runs, and of a share of images."""

from collections.abc import Sequence
from math import sqrt
from statistics import mean, stdev
from typing import NamedTuple

FEW = 3
"""Fewer values say too little about how they differ: no text or figure shows an interval of them."""


class Spread(NamedTuple):
    """A mean over runs or pairs of runs, with half of its 95 % confidence interval."""

    mean: float
    half: float | None = None
    """None for a single value."""
    num: int = 1
    """How many values."""

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """With an interval by Student's t, which is wide for few values."""
        if len(values) == 1:
            return cls(values[0])
        from scipy.stats import t  # type: ignore[import-untyped]  # comes with scikit-learn, without stubs

        error = stdev(values) / sqrt(len(values))
        return cls(mean(values), float(t.ppf(0.975, len(values) - 1)) * error, len(values))

    @property
    def shown(self) -> float | None:
        """Half of the interval, if there are enough values to show it."""
        return self.half if self.num >= FEW else None

    def __str__(self) -> str:
        return f"{self.mean:z.2f}" if self.shown is None else f"{self.mean:z.2f} ± {self.shown:.2f}"

    @property
    def signed(self) -> str:
        """A difference as text, with a minus that is as wide as a plus."""
        return f"+{self}".replace("+-", "−")


def welch(a: Sequence[float], b: Sequence[float]) -> Spread:
    """mean(a) − mean(b) of runs that are not paired, at least two of each, with the interval of Welch's t-test."""
    from scipy.stats import ttest_ind

    low, high = ttest_ind(a, b, equal_var=False).confidence_interval(0.95)
    return Spread((low + high) / 2, float(high - low) / 2, min(len(a), len(b)))


def wilson_interval(percent: float, num: int) -> tuple[float, float]:
    """The 95 % interval of a share of `num` images, in percent (Wilson 1927); valid at 0 and 100 too."""
    from scipy.stats import binomtest

    low, high = binomtest(round(percent * num / 100), num).proportion_ci(0.95, method="wilson")
    return 100 * low, 100 * high
