"""Runs as a comparison reads them, in groups that differ only in the seed."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

from contune.analysis.comparison.titles import titles
from contune.analysis.headline import data_title
from contune.config import MACHINE_SETTINGS

JUDGED, CLASSIFIER, LINEAR, KNN = "judged", "classifier", "linear", "knn"
"""Measures; the first is what a method is judged by, `contune experiment`'s top-1."""
SEED = "run.seed"
NOT_IN_TITLES = (SEED, "method.name", "data.path", "data.name")


@dataclass(frozen=True, eq=False)
class Run:
    """What a run folder holds."""

    name: str
    """As the person named it; hostile until escaped."""
    config: dict[str, dict[str, Any]]
    result: dict[str, Any] | None
    """None while it has not ended."""
    metrics: list[dict[str, float]]

    @property
    def seed(self) -> int:
        return int(self.config["run"]["seed"])

    @property
    def settings(self) -> dict[str, Any]:
        """By dotted key, without those that say where and how a run is done."""
        flat = {f"{part}.{name}": value for part, values in self.config.items() for name, value in values.items()}
        return {key: value for key, value in flat.items() if key not in MACHINE_SETTINGS}

    @property
    def data(self) -> str:
        """As a person calls it."""
        return data_title({"data": self.config["data"]["name"]}, self.config)

    @property
    def trains_classifier(self) -> bool:
        return self.top1(CLASSIFIER) is not None

    def top1(self, measure: str) -> float | None:
        """By `linear` (the paper's probe where it was run, else the fast one), by `knn`, by the `classifier` that was
        trained with the encoder, or as `judged`: by the classifier of a method that trains one, else as `linear`."""
        value = None if self.result is None else self.result.get(f"{self._measured_by(measure)}_top1")
        return float(value) if value is not None and isfinite(value) else None

    def measured_as(self, measure: str) -> tuple[str, str | None, str | None]:
        """Data, split and protocol."""
        result, data = self.result or {}, self.config["data"]
        name = data["path"] if data["name"] == "images" and data["path"] else data["name"]
        return str(name), result.get("split"), result.get(f"{self._measured_by(measure)}_protocol")

    def comparable(self, other: "Run", measure: str) -> bool:
        """Whether both were measured alike, or, where methods are judged, each by what is its own."""
        mine, theirs = self.measured_as(measure), other.measured_as(measure)
        own = measure == JUDGED and self.trains_classifier != other.trains_classifier
        return mine == theirs or (own and mine[:2] == theirs[:2])

    def _measured_by(self, measure: str) -> str:
        if measure != JUDGED:
            return measure
        return CLASSIFIER if self.trains_classifier else LINEAR

    @property
    def state(self) -> str:
        """How far it is; empty of a finished one."""
        epochs = self.config["optim"]["epochs"]
        if self.result is not None:
            given_up = self.result.get("stopped_at")
            return "" if given_up is None else f"given up by contune tune after {given_up} of {epochs} epochs"
        if not self.metrics:
            return f"not finished: nothing logged yet, of {epochs} epochs"
        return f"not finished: {self.metrics[-1].get('epoch', 0.0):.1f} of {epochs} epochs"


@dataclass(frozen=True, eq=False)
class Group:
    """Runs of the same settings, one a seed."""

    title: str
    runs: tuple[Run, ...]
    repeated: tuple[Run, ...] = ()
    """Runs of a seed that is among them already: they add nothing, so they do not count."""

    def by_seed(self, measure: str) -> dict[int, float]:
        found = {run.seed: run.top1(measure) for run in self.runs}
        return {seed: value for seed, value in found.items() if value is not None}

    def pairs(self, other: "Group", measure: str) -> list[tuple[float, float]]:
        """Of the seeds that both have, measured so that they can be compared."""
        mine, theirs = self.by_seed(measure), other.by_seed(measure)
        others = {run.seed: run for run in other.runs}
        seeds = [run.seed for run in self.runs if run.seed in others and run.comparable(others[run.seed], measure)]
        return [(mine[seed], theirs[seed]) for seed in seeds if seed in mine and seed in theirs]


def grouped(runs: Sequence[Run]) -> list[Group]:
    """In the order of their first run; titles tell them apart."""
    together: dict[str, list[Run]] = {}
    for run in runs:
        settings = {key: value for key, value in run.settings.items() if key != SEED}
        together.setdefault(json.dumps(settings, sort_keys=True), []).append(run)
    members = list(together.values())
    names = _titles([group[0] for group in members])
    return [_group(name, group) for name, group in zip(names, members, strict=True)]


def different_settings(runs: Sequence[Run]) -> dict[str, list[Any]]:
    """Keys in which runs differ, with the value of each run; None where a run has no such setting."""
    settings = [run.settings for run in runs]
    keys = list(dict.fromkeys(key for each in settings for key in each))
    values = {key: [each.get(key) for each in settings] for key in keys}
    return {key: found for key, found in values.items() if any(value != found[0] for value in found)}


def _group(title: str, runs: list[Run]) -> Group:
    first: dict[int, Run] = {}
    for run in sorted(runs, key=lambda run: run.result is None):  # a finished one counts before an unfinished one
        first.setdefault(run.seed, run)
    counted = tuple(first[seed] for seed in sorted(first))
    return Group(title, counted, tuple(run for run in runs if run not in counted))


def _titles(runs: Sequence[Run]) -> list[str]:
    """The method, the data where they differ, and what else tells a run from those it is compared with; its name too
    where that is not enough."""
    methods = [str(run.config["method"]["name"]) for run in runs]
    data = [run.data for run in runs]
    several = len(set(data)) > 1
    beginnings = [f"{method} on {name}" if several else method for method, name in zip(methods, data, strict=True)]
    different = {key: values for key, values in different_settings(runs).items() if key not in NOT_IN_TITLES}
    found = titles(beginnings, [run.measured_as(JUDGED)[0] for run in runs], different)
    return [
        title if found.count(title) == 1 else f"{title} ({run.name})" for title, run in zip(found, runs, strict=True)
    ]
