"""Sets of runs that are drawn together: the paper's tables and figures, and comparisons of our own.

An experiment is a function in a file here that returns an `Experiment`, and a line below.
"""

from collections.abc import Callable

from contune.errors import unknown
from contune.experiments import ssl
from contune.experiments.experiment import Experiment

EXPERIMENTS: dict[str, Callable[[], Experiment]] = {
    "ssl-digits": ssl.digits,
    "ssl-cifar100": ssl.cifar100,
}


def find_experiment(name: str) -> Experiment:
    if name not in EXPERIMENTS:
        raise unknown("experiment", name, EXPERIMENTS)
    return EXPERIMENTS[name]()


__all__ = ["EXPERIMENTS", "Experiment", "find_experiment"]
