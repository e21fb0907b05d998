"""The paper's experiments: which runs they have, with which settings, beside which numbers."""

import pytest

from contune.config import Config
from contune.experiments import EXPERIMENTS, find_experiment
from contune.experiments.figures import FIGURES
from contune.experiments.plan import PAPER, TCL, PlanRow
from contune.experiments.tables import TABLES


def configs(name: str, *changes: str) -> dict[tuple[str, str], Config]:
    """By method and place."""
    experiment = find_experiment(name).changed(changes)
    return {(row.method, row.at): row.config(experiment.overrides, 0) for row in experiment.rows}


def row(name: str, title: str) -> PlanRow:
    return next(row for row in find_experiment(name).rows if row.title == title)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_is_complete(name: str) -> None:
    experiment = find_experiment(name)
    assert experiment.summary.endswith(".")
    assert experiment.layout in TABLES
    assert experiment.layout in FIGURES
    assert len({row.run_name(3) for row in experiment.rows}) == len(experiment.rows)
    for each in experiment.rows:
        config = each.config(experiment.overrides, seed=3)
        assert config.data.name == "digits" or not name.endswith("-digits")
    if name.endswith("-digits") and name not in ("ssl-digits", "robustness-digits"):  # a CPU does it in minutes
        assert sum(config.optim.epochs for config in configs(name).values()) <= 240


def test_table_1_is_the_papers_with_the_recipes_of_each_data_set() -> None:
    found = configs("table1")
    assert {config.data.name for config in found.values()} == {"cifar10", "cifar100", "fmnist", "imagenet100"}
    assert row("table1", "TCL, CIFAR-100").reported == {PAPER: 79.8}
    assert configs("table1-250")[TCL, "CIFAR-100"].optim.epochs == 200
    classes = configs("table1", "data.classes=list.txt").values()
    assert {config.data.name for config in classes if config.data.classes} == {"imagenet100"}
