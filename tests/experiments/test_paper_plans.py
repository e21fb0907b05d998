"""The runs of the paper's tables and figures have the values of its appendix B, and its numbers beside them."""

from typing import Any

import pytest

from contune.config import Config
from contune.experiments import EXPERIMENTS, find_experiment
from contune.experiments.plan import PAPER, Row
from contune.experiments.style import SUPCON, TCL


def configs(name: str, *overrides: str) -> dict[tuple[str, str], Config]:
    experiment = find_experiment(name).changed(overrides)
    return {(row.series, row.at): row.config(experiment.overrides, seed=0) for row in experiment.rows}


def row(name: str, series: str, at: str) -> Row:
    return next(row for row in find_experiment(name).rows if (row.series, row.at) == (series, at))


def knobs(config: Config) -> dict[str, Any]:
    return config.to_dict()["method"]


def views(config: Config) -> int:
    return config.optim.batch_images * config.augment.views


def test_table_1_is_three_methods_on_four_data_sets() -> None:
    experiment, found = find_experiment("table1"), configs("table1")
    assert len(found) == 12
    assert {config.data.name for config in found.values()} == {"cifar10", "cifar100", "fmnist", "imagenet100"}
    assert [row.beside[PAPER] for row in experiment.rows] == [
        95.0, 96.3, 96.4, 75.3, 79.1, 79.8, 94.5, 95.5, 95.7, 84.2, 85.9, 86.7,
    ]  # fmt: skip
    assert found["Cross-entropy", "CIFAR-10"].optim.epochs == 150
    assert found[TCL, "CIFAR-10"].optim.epochs == 100
    assert knobs(found[TCL, "CIFAR-100"])["k1"] == 4000
    assert found[TCL, "ImageNet-100"].model.encoder == "resnet18"


def test_250_epochs_are_200_and_the_probes_50() -> None:
    experiment, found = find_experiment("table1-250"), configs("table1-250")
    assert {(config.optim.epochs, config.eval.linear_epochs) for config in found.values()} == {(200, 50)}
    assert [row.beside[PAPER] for row in experiment.rows] == [96.7, 96.8, 81.0, 81.6, 95.5, 95.7, 86.5, 87.1]


def test_the_digits_are_trained_twice_as_long_where_the_paper_does() -> None:
    once, twice = configs("table1-digits"), configs("table1-250-digits")
    assert {key: config.optim.epochs for key, config in twice.items()} == {
        key: 2 * config.optim.epochs for key, config in once.items() if key[0] != "Cross-entropy"
    }


def test_every_experiment_has_a_form_on_digits() -> None:
    small = {name.removesuffix("-digits") for name in EXPERIMENTS if name.endswith("-digits")}
    assert {name for name in EXPERIMENTS if not name.endswith("-digits")} - small == {
        "ssl-cifar10", "ssl-cifar100", "ssl-imagenet100",
    }, "these three have ssl-digits"  # fmt: skip


@pytest.mark.parametrize(
    ("size", "lr", "k1"),
    [(32, 8e-3, 5000), (64, 9e-3, 7500), (128, 0.1, 5000), (256, 0.2, 4000), (512, 0.5, 4000), (1024, 1.0, 4000)],
)
def test_batch_sizes_are_those_of_appendix_b2(size: int, lr: float, k1: float) -> None:
    found = configs("fig-batch")
    for method in (SUPCON, TCL):
        config = found[method, str(size)]
        assert (views(config), config.optim.lr, config.model.encoder) == (size, lr, "resnet50")
        assert config.augment.policy == "autoaugment"
    assert (knobs(found[TCL, str(size)])["k1"], knobs(found[TCL, str(size)])["k2"]) == (k1, 1.0)


def test_encoders_are_those_of_appendix_b2() -> None:
    found = configs("fig-encoder")
    rates = {config.model.encoder: (config.optim.lr, views(config)) for config in found.values()}
    assert rates == {"resnet18": (0.1, 128), "resnet34": (0.1, 128), "resnet50": (0.1, 128), "resnet101": (0.09, 128)}
    assert {knobs(found[key])["k1"] for key in found if key[0] == TCL} == {5000.0}


def test_embedding_sizes_are_those_of_appendix_b2() -> None:
    found = configs("fig-projector")
    sizes = [knobs(found[key])["projector_dim"] for key in found if key[0] == TCL]
    assert sizes == [64, 128, 256, 512, 1024, 2048]
    assert {(config.optim.lr, views(config), config.model.encoder) for config in found.values()} == {
        (0.1, 128, "resnet50")
    }


def test_augmentations_are_those_of_appendix_b2() -> None:
    found = configs("fig-augment")
    strong, weak = found[TCL, "AutoAugment"], found[TCL, "SimAugment"]
    assert (strong.optim.epochs, weak.optim.epochs) == (100, 200)
    assert (strong.augment.policy, weak.augment.policy) == ("autoaugment", "simaugment-supervised")
    assert [(knobs(config)["k1"], knobs(config)["k2"]) for config in (strong, weak)] == [(5000, 1), (5000, 1.2)]
    assert {config.optim.lr for config in found.values()} == {0.1}
    assert configs("fig-augment", "optim.epochs=3")[TCL, "SimAugment"].optim.epochs == 3


def test_k1_and_k2_are_those_of_section_4() -> None:
    k1, k2 = configs("fig-k1"), configs("fig-k2")
    assert [knobs(k1[key])["k1"] for key in k1 if key[0] == TCL] == [10, 100, 1000, 2000, 4000, 8000, 20000, 50000]
    assert [(knobs(k2[key])["k1"], knobs(k2[key])["k2"]) for key in k2 if key[0] == TCL] == [(50000, 1), (50000, 3)]
    assert {config.model.encoder for config in (*k1.values(), *k2.values())} == {"resnet50"}
    assert [row("fig-k2", TCL, at).beside[PAPER] for at in ("1", "3")] == [71.8, 76.2]
    assert row("fig-k1", TCL, "50000").beside == {PAPER: 71.8}
    assert row("fig-k1", TCL, "10").beside == {}


def test_many_seeds_are_of_the_recipes_beside_the_intervals_of_appendix_b1() -> None:
    experiment, found = find_experiment("ci"), configs("ci")
    assert experiment.num_seeds == 5
    assert {config.model.encoder for config in found.values()} == {"resnet18"}
    assert [views(found[method, ""]) for method in (SUPCON, TCL)] == [256, 256]
    assert found[TCL, ""].fingerprint() == configs("fig-k1", "model.encoder=resnet18")[TCL, "4000"].fingerprint()
    assert row("ci", TCL, "").beside == {PAPER: 75.72}
    assert row("ci", TCL, "").beside_half == {PAPER: 0.16}
    assert row("ci", SUPCON, "").beside_half == {PAPER: 0.23}


@pytest.mark.parametrize("name", [name for name in EXPERIMENTS if name.endswith("-digits")])
def test_what_a_cpu_does_in_minutes(name: str) -> None:
    """No other data set, and no more than a few hundred epochs of the small encoder in all."""
    assert name.removesuffix("-digits") in EXPERIMENTS or name == "ssl-digits"
    found = configs(name).values()
    assert {config.data.name for config in found} == {"digits"}
    if name != "ssl-digits":
        assert sum(config.optim.epochs for config in found) <= 240


def test_a_class_list_is_for_imagenet_only() -> None:
    found = configs("table1", "data.classes=list.txt")
    assert {config.data.name for config in found.values() if config.data.classes} == {"imagenet100"}
