"""Runs as a comparison reads them, in groups that differ only in the seed."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

from contune.config import MACHINE_SETTINGS

SEED = "run.seed"
_NOT_IN_TITLES = ("method.name", "data.path", "data.name")


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

    def top1(self, measure: str) -> float | None:
        """By `linear` (the paper's probe where it was run, else the fast one) or `knn`."""
        value = None if self.result is None else self.result.get(f"{measure}_top1")
        return float(value) if value is not None and isfinite(value) else None

    def measured_as(self, measure: str) -> tuple[Any, ...]:
        """Accuracies can be compared where these are the same: data, split and protocol."""
        result = self.result or {}
        return self.config["data"]["name"], result.get("split"), result.get(f"{measure}_protocol")

    @property
    def state(self) -> str:
        """How far it is; empty of a finished one."""
        if self.result is not None:
            return ""
        epochs = self.config["optim"]["epochs"]
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


def grouped(runs: Sequence[Run]) -> list[Group]:
    """In the order of their first run; titles tell them apart."""
    together: dict[str, list[Run]] = {}
    for run in runs:
        settings = {key: value for key, value in run.settings.items() if key != SEED}
        together.setdefault(json.dumps(settings, sort_keys=True), []).append(run)
    members = list(together.values())
    titles = _titles([group[0] for group in members])
    return [_group(title, group) for title, group in zip(titles, members, strict=True)]


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
    """The method and what else tells a run from the others; its name too where that is not enough."""
    different = different_settings(runs)
    shared = [key for key in different if all(key in run.settings for run in runs)]
    told = [key for key in shared if key != SEED and key not in _NOT_IN_TITLES]
    titles = []
    for run in runs:
        methods_own = [key for key in different if key in run.settings and key not in shared]
        same_method = [other for other in runs if other.config["method"]["name"] == run.config["method"]["name"]]
        own = [key for key in methods_own if any(o.settings.get(key) != run.settings[key] for o in same_method)]
        words = [run.config["method"]["name"]]
        if "data.name" in different:
            words[0] += f" on {run.config['data']['name']}"
        words += [f"{key.partition('.')[2]} {_short(run.settings[key])}" for key in (*told, *own)]
        titles.append(", ".join(words[:4]))
    return [
        title if titles.count(title) == 1 else f"{title} ({run.name})" for title, run in zip(titles, runs, strict=True)
    ]


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
