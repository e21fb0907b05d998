"""The paper's experiments: which runs they have, with which settings, beside which numbers."""

from typing import Any

import pytest

from contune.config import Config
from contune.experiments import EXPERIMENTS, find_experiment
from contune.experiments.figures import FIGURES
from contune.experiments.plan import CROSS_ENTROPY, PAPER, SUPCON, TCL, PlanRow
from contune.experiments.tables import TABLES


def configs(name: str, *changes: str) -> dict[tuple[str, str], Config]:
    """By method and place."""
    experiment = find_experiment(name).changed(changes)
    return {(row.method, row.at): row.config(experiment.overrides, 0) for row in experiment.rows}


def row(name: str, title: str) -> PlanRow:
    return next(row for row in find_experiment(name).rows if row.title == title)


def knobs(config: Config) -> dict[str, Any]:
    return config.to_dict()["method"]


def views(config: Config) -> int:
    return config.optim.batch_images * config.augment.views


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_is_complete(name: str) -> None:
    experiment = find_experiment(name)
    assert experiment.title
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
    assert found[CROSS_ENTROPY, "CIFAR-100"].optim.epochs == 150
    assert found[TCL, "CIFAR-100"].optim.epochs == 100
    assert row("table1", "TCL, CIFAR-100").reported == {PAPER: 79.8}
    assert configs("table1-250")[TCL, "CIFAR-100"].optim.epochs == 200
    classes = configs("table1", "data.classes=list.txt").values()
    assert {config.data.name for config in classes if config.data.classes} == {"imagenet100"}


@pytest.mark.parametrize(
    ("size", "lr", "k1"),
    [(32, 8e-3, 5000), (64, 9e-3, 7500), (128, 0.1, 5000), (256, 0.2, 4000), (512, 0.5, 4000), (1024, 1.0, 4000)],
)
def test_batch_sizes_are_those_of_appendix_b2(size: int, lr: float, k1: float) -> None:
    found = configs("fig-batch")
    for method in (SUPCON, TCL):
        config = found[method, str(size)]
        assert (views(config), config.optim.lr, config.model.encoder) == (size, lr, "resnet50")
    assert (knobs(found[TCL, str(size)])["k1"], knobs(found[TCL, str(size)])["k2"]) == (k1, 1.0)
    papers = {row.title: row.reported for row in find_experiment("fig-batch").rows if row.reported}
    assert papers == {"SupCon, 256": {PAPER: 79.1}, "TCL, 256": {PAPER: 79.8}}


def test_many_seeds_are_shared_with_figure_3() -> None:
    experiment = find_experiment("ci")
    assert (experiment.num_seeds, find_experiment("ci-digits").num_seeds) == (5, 5)
    assert {config.model.encoder for config in configs("ci").values()} == {"resnet18"}
    assert not any(each.reported for each in experiment.rows), "the paper's runs have batches of 128"
    assert {views(config) for config in configs("fig-k1").values()} == {128}
    same = configs("fig-k1", "model.encoder=resnet18", "optim.batch_images=128", "optim.lr=0.2")[TCL, "k1 = 4000"]
    assert configs("ci")[TCL, ""].fingerprint() == same.fingerprint(), "these runs are shared"


def test_self_supervised_methods_are_compared_with_an_untrained_encoder() -> None:
    digits, cifar100 = find_experiment("ssl-digits"), find_experiment("ssl-cifar100")
    assert [each.title for each in digits.rows if each.is_baseline] == ["Random encoder", "Raw pixels"]
    assert {each.config(cifar100.overrides, 0).optim.epochs for each in cifar100.rows} == {0, 100}
    assert row("ssl-cifar100", "BYOL").reported == {"paper, 1000 epochs": 70.2, "solo-learn, 1000 epochs": 70.46}
    longer = cifar100.changed(["optim.epochs=1000"])
    assert longer.rows[0].reported == cifar100.rows[0].reported, "these numbers say which epochs they had"
    assert "Random encoder kept" in longer.notes[-1]
