"""What the runs of a row came to: means over seeds with their intervals, or why there is no number."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any, NamedTuple

from contune.experiments.plan import PIXELS, Row
from contune.train.collapse import COLLAPSED_RANK

Result = dict[str, Any]
"""The content of a result.json."""


class Spread(NamedTuple):
    """A mean and half of its 95 % confidence interval; None for that of a single value."""

    mean: float
    half: float | None = None

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """By Student's t, which is wide for few values."""
        if len(values) == 1:
            return cls(values[0])
        from scipy.stats import t  # type: ignore[import-untyped]  # comes with scikit-learn, without stubs

        return cls(mean(values), float(t.ppf(0.975, len(values) - 1)) * stdev(values) / len(values) ** 0.5)

    def __str__(self) -> str:
        return f"{self.mean:.2f}" if self.half is None else f"{self.mean:.2f} ± {self.half:.2f}"


@dataclass(frozen=True)
class Outcome:
    """A row with what its runs left."""

    row: Row
    results: tuple[Result, ...] = ()
    """Of the runs that ended, by seed."""
    failures: tuple[str, ...] = ()
    """Of those that did not: seed and reason."""
    num_missing: int = 0
    """Runs that have not been done yet."""

    @property
    def of_pixels(self) -> bool:
        return self.row.measured == PIXELS

    @property
    def has_seeds(self) -> bool:
        """Pixels are the same whatever the seed."""
        return not self.of_pixels

    def accuracy(self, measure: str) -> Spread | None:
        """Top-1 % by `linear` (the paper's probe where it was run, else the fast one) or `knn`."""
        found = [value for result in self._counted if (value := self._top1(result, measure)) is not None]
        return Spread.of(found) if found else None

    def logged(self, metric: str) -> Spread | None:
        """What training logged last."""
        found = [result["last_logged"][metric] for result in self.results if metric in result.get("last_logged", {})]
        return Spread.of(found) if found and self.has_seeds else None

    def collapsed(self) -> list[Result]:
        return [result for result in self.results if self._rank(result) < COLLAPSED_RANK and self.has_seeds]

    def remark(self) -> str:
        """What a reader of its numbers has to know, in a few words."""
        num = len(self.results) + len(self.failures) + self.num_missing
        counts = {"collapsed": len(self.collapsed()), "failed": len(self.failures), "not run yet": self.num_missing}
        return ", ".join(
            word if count == num else f"{count} of {num} {word}" for word, count in counts.items() if count
        )

    def sentences(self) -> list[str]:
        """The same, at length."""
        found = [
            f"{self.row.title}, seed {result['seed']}: the features collapsed, their effective rank is "
            f"{self._rank(result):.2f}."
            for result in self.collapsed()
        ]
        return [*found, *(f"{self.row.title}, {failure}" for failure in self.failures)]

    @property
    def _counted(self) -> tuple[Result, ...]:
        return self.results if self.has_seeds else self.results[:1]

    def _top1(self, result: Result, measure: str) -> float | None:
        by_name = {found["name"]: float(found["top1"]) for found in result["measures"]}
        names = (measure, f"{measure}-fast")
        if self.of_pixels:
            names = (f"pixels-{measure}", f"pixels-{measure}-fast")
        return next((by_name[name] for name in names if name in by_name), None)

    def _rank(self, result: Result) -> float:
        rank: float = result.get("last_logged", {}).get("effective_rank", float("inf"))
        return rank
