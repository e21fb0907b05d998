"""What a row's runs logged over training, as result.json keeps it: a hundred points of each curve at most."""

from math import isnan, nan
from statistics import mean
from typing import NamedTuple

from contune.experiments.outcome import Outcome


class Curve(NamedTuple):
    epochs: list[float]
    values: list[float]

    @property
    def mean(self) -> float:
        """Over all of training; nan where nothing was logged."""
        known = [value for value in self.values if not isnan(value)]
        return mean(known) if known else nan


def curve(outcome: Outcome, key: str) -> Curve | None:
    """The mean over seeds; None where no run logged it."""
    kept = [result["curves"] for result in outcome.results if key in result.get("curves", {})]
    if not kept:
        return None
    epochs = kept[0]["epoch"]
    alike = [_numbers(each[key]) for each in kept if each["epoch"] == epochs]
    return Curve(epochs, [mean(values) for values in zip(*alike, strict=True)])


def _numbers(values: list[float | None]) -> list[float]:
    """Where a curve has a gap, nan."""
    return [nan if value is None else value for value in values]
