"""Sets of runs that are drawn together: the paper's tables and figures, and comparisons of our own.

An experiment is a function in a file here that returns an `Experiment`, and a line below.
"""

from collections.abc import Callable
from dataclasses import replace

from contune.errors import unknown
from contune.experiments import seeds, ssl, stability, supervised, tuning
from contune.experiments.experiment import Experiment

EXPERIMENTS: dict[str, Callable[[], Experiment]] = {
    "table1": supervised.table1,
    "table1-digits": supervised.digits,
    "table1-250": supervised.table1_250,
    "table1-250-digits": supervised.digits_250,
    "fig-batch": stability.batch,
    "fig-batch-digits": stability.batch_digits,
    "fig-encoder": stability.encoder,
    "fig-encoder-digits": stability.encoder_digits,
    "fig-projector": stability.projector,
    "fig-projector-digits": stability.projector_digits,
    "fig-augment": stability.augment,
    "fig-augment-digits": stability.augment_digits,
    "fig-k1": tuning.k1,
    "fig-k1-digits": tuning.k1_digits,
    "fig-k2": tuning.k2,
    "fig-k2-digits": tuning.k2_digits,
    "ci": seeds.ci,
    "ci-digits": seeds.digits,
    "ssl-cifar10": ssl.cifar10,
    "ssl-cifar100": ssl.cifar100,
    "ssl-imagenet100": ssl.imagenet100,
    "ssl-digits": ssl.digits,
}


def find_experiment(name: str) -> Experiment:
    if name not in EXPERIMENTS:
        raise unknown("experiment", name, EXPERIMENTS)
    return replace(EXPERIMENTS[name](), name=name)


__all__ = ["EXPERIMENTS", "Experiment", "find_experiment"]
