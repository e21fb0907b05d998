"""What the runs of a row came to: means over seeds with their intervals, or why there is no number."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from contune.experiments.plan import PIXELS, Row
from contune.report.statistics import PairedDifference, Spread, paired
from contune.train.monitors import COLLAPSED_RANK

Result = dict[str, Any]
"""The content of a result.json."""
TOP1, LINEAR, FAST, KNN = "top1", "linear", "fast", "knn"
"""Measures; the first is what a method is judged by."""
NAMES: Mapping[str, tuple[str, ...]] = {
    TOP1: ("classifier", "linear", "linear-fast"),
    LINEAR: ("linear", "linear-fast"),
    FAST: ("linear-fast",),
    KNN: ("knn",),
}
"""Of each, the names that it has in results, the preferred one first."""


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
    absent: str = ""
    """Why its data set could not be opened, if it was not."""

    @property
    def of_pixels(self) -> bool:
        return self.row.measured == PIXELS

    @property
    def has_seeds(self) -> bool:
        """Pixels are the same whatever the seed."""
        return not self.of_pixels

    @property
    def left_out(self) -> bool:
        """Whether there is nothing to show, for want of its data."""
        return bool(self.absent) and not self.results

    def accuracy(self, measure: str) -> Spread | None:
        """Top-1 % by `linear` (the paper's probe where it was run, else the fast one), by the `fast` one, by `knn`, or
        by `top1`: the classifier of a method that trains one, else as `linear`."""
        found = list(self.by_seed(measure).values())
        return Spread.of(found) if found else None

    def by_seed(self, measure: str) -> dict[int, float]:
        return {int(result["seed"]): float(found["top1"]) for result, found in self._measured(measure)}

    def protocols(self, measure: str) -> list[str]:
        return list(dict.fromkeys(found["protocol"] for _, found in self._measured(measure)))

    def above(self, other: "Outcome", measure: str = TOP1) -> PairedDifference | None:
        """Over the seeds that both have."""
        mine, theirs = self.by_seed(measure), other.by_seed(measure)
        seeds = [seed for seed in mine if seed in theirs]
        return paired([mine[seed] for seed in seeds], [theirs[seed] for seed in seeds]) if seeds else None

    def logged(self, metric: str) -> Spread | None:
        """What training logged last."""
        found = [result["last_logged"][metric] for result in self.results if metric in result.get("last_logged", {})]
        return Spread.of(found) if found and self.has_seeds else None

    def collapsed(self) -> list[Result]:
        return [result for result in self.results if self._rank(result) < COLLAPSED_RANK and self.has_seeds]

    def remark(self) -> str:
        """What a reader of its numbers has to know, in a few words."""
        num = len(self.results) + len(self.failures) + self.num_missing
        missing = "no data" if self.absent else "not run yet"
        counts = {"collapsed": len(self.collapsed()), "failed": len(self.failures), missing: self.num_missing}
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

    def _measured(self, measure: str) -> list[tuple[Result, dict[str, Any]]]:
        counted = self.results if self.has_seeds else self.results[:1]
        names = [f"pixels-{name}" if self.of_pixels else name for name in NAMES[measure]]
        pairs = []
        for result in counted:
            by_name = {found["name"]: found for found in result["measures"]}
            first = next((by_name[name] for name in names if name in by_name), None)
            if first is not None:
                pairs.append((result, first))
        return pairs

    def _rank(self, result: Result) -> float:
        rank: float = result.get("last_logged", {}).get("effective_rank", float("inf"))
        return rank


def are_measured_apart(outcomes: Sequence[Outcome]) -> bool:
    """Whether top-1 is by another protocol for some, such as the classifier of cross-entropy."""
    return len({protocol for each in outcomes for protocol in each.protocols(TOP1)}) > 1
