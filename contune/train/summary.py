"""Several runs side by side, and what they come to over seeds."""

from collections.abc import Sequence
from copy import deepcopy
from statistics import mean, stdev
from typing import Any

from contune.config import Config
from contune.train.many import Job

COLUMNS = ("run", "linear %", "kNN %", "folder")
MEASURES = ("linear_top1", "knn_top1")


def summary(jobs: Sequence[Job], results: Sequence[dict[str, Any]]) -> list[tuple[str, ...]]:
    """A row for each run that ended, then one for the seeds of each setting: mean ± standard deviation."""
    done = [(job, result) for job, result in zip(jobs, results, strict=True) if "error" not in result]
    rows = [
        (job.title or job.folder.name, *(_number(result.get(key)) for key in MEASURES), str(job.folder))
        for job, result in done
    ]
    groups: dict[str, list[dict[str, Any]]] = {}
    for job, result in done:
        groups.setdefault(_without_seed(job.config), []).append(result)
    for group in groups.values():
        if len(group) > 1:
            spreads = [spread([result.get(key) for result in group]) for key in MEASURES]
            rows.append((f"mean ± s.d. of {len(group)} seeds", *spreads, ""))
    return rows


def spread(values: Sequence[float | None]) -> str:
    """Mean ± standard deviation of a sample; nothing where not every run has a value."""
    numbers = [value for value in values if value is not None]
    if len(numbers) < max(2, len(values)):
        return ""
    return f"{mean(numbers):.2f} ± {stdev(numbers):.2f}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _without_seed(config: Config) -> str:
    same = deepcopy(config)
    same.run.seed = 0
    return same.fingerprint()
