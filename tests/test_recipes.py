"""The recipes: all of them whole, and the paper's with the values of its appendix B."""

import inspect

import pytest

from contune.config import Config
from contune.data import DATASETS
from contune.data.augment.spec import policy_from_text
from contune.errors import UserError
from contune.methods.simclr import SimCLR
from contune.methods.tcl import TCL
from contune.models.encoders import build_encoder
from contune.recipes import RECIPES, find_recipe, summary
from contune.train.setup import view_policies

SUPERVISED = {
    # data: (encoder, batch counted in views, lr of SupCon, lr of TCL, k1, augmentation)
    "cifar10": ("resnet50", 128, 0.1, 0.1, 5000.0, "autoaugment"),
    "cifar100": ("resnet50", 256, 0.2, 0.2, 4000.0, "autoaugment"),
    "fmnist": ("resnet50", 128, 0.09, 0.09, 5000.0, "crop-flip"),
    "imagenet100": ("resnet18", 256, 0.2, 0.3, 4000.0, "autoaugment"),
}
SELF_SUPERVISED_EPOCHS = {"cifar10": 1000, "cifar100": 1000, "imagenet100": 400}
ACCURACIES = {
    "cifar10-ce": "95.0", "cifar10-supcon": "96.3", "cifar10-tcl": "96.4",
    "cifar100-ce": "75.3", "cifar100-supcon": "79.1", "cifar100-tcl": "79.8",
    "fmnist-ce": "94.5", "fmnist-supcon": "95.5", "fmnist-tcl": "95.7",
    "imagenet100-ce": "84.2", "imagenet100-supcon": "85.9", "imagenet100-tcl": "86.7",
    "cifar10-supcon-250": "96.7", "cifar10-tcl-250": "96.8",
    "cifar100-supcon-250": "81.0", "cifar100-tcl-250": "81.6",
    "fmnist-supcon-250": "95.5", "fmnist-tcl-250": "95.7",
    "imagenet100-supcon-250": "86.5", "imagenet100-tcl-250": "87.1",
    "cifar10-tcl-ssl": "91.6", "cifar100-tcl-ssl": "66.7", "imagenet100-tcl-ssl": "77.9",
}  # fmt: skip
"""Tables 1, 2 and the appendix's of 250 epochs."""


def knobs(config: Config) -> dict[str, object]:
    return config.to_dict()["method"]


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_is_whole(name: str) -> None:
    config = RECIPES[name]().check()
    assert config == RECIPES[name](), "a recipe returns a config of its own each time"
    assert config is not RECIPES[name]()
    assert config.data.name in {*DATASETS, "images"}
    for text in view_policies(config.augment):
        policy_from_text(text, image_size=config.data.image_size or 32, channels=1 if name.startswith("fm") else 3)
    build_encoder(config.model.encoder, stem=config.model.stem, norm=config.model.norm)


@pytest.mark.parametrize("name", RECIPES)
def test_the_first_line_of_a_recipe_says_what_it_trains(name: str) -> None:
    line = summary(RECIPES[name])
    assert line == inspect.getdoc(RECIPES[name]).splitlines()[0]  # type: ignore[union-attr]  # every recipe has one
    assert line.endswith(".")
    assert 10 < len(line) <= 110


@pytest.mark.parametrize("epochs", [100, 200])
@pytest.mark.parametrize("data", SUPERVISED)
def test_supervised_runs_are_those_of_appendix_b1(data: str, epochs: int) -> None:
    encoder, batch_views, lr_supcon, lr_tcl, k1, policy = SUPERVISED[data]
    suffix = "" if epochs == 100 else "-250"
    tcl, supcon = RECIPES[f"{data}-tcl{suffix}"](), RECIPES[f"{data}-supcon{suffix}"]()
    for config, lr in ((tcl, lr_tcl), (supcon, lr_supcon)):
        assert config.data.name == data
        assert config.model.encoder == encoder
        assert config.augment.policy == policy
        assert config.optim.batch_images * config.augment.views == batch_views
        optim = config.optim
        assert (optim.name, optim.lr, optim.epochs, optim.momentum) == ("sgd", lr, epochs, 0.9)
        assert optim.weight_decay == 1e-4
        assert optim.schedule == "cosine-epoch"
        assert knobs(config)["temperature"] == 0.1
        probe = config.eval
        assert (probe.linear, probe.linear_epochs, probe.linear_lr) == ("paper", 50, 0.5)
    assert (knobs(tcl)["k1"], knobs(tcl)["k2"]) == (k1, 1.0)
    assert tcl.differences(supcon) == sorted(
        {"method.k1", "method.k2", "method.name", "method.supervised", "method.variant"}
        | ({"optim.lr"} if lr_tcl != lr_supcon else set())
    )


@pytest.mark.parametrize("data", SUPERVISED)
def test_cross_entropy_has_the_same_total_of_epochs(data: str) -> None:
    assert RECIPES[f"{data}-ce"]().optim.epochs == 150
    assert RECIPES[f"{data}-ce-250"]().optim.epochs == 250
    assert RECIPES[f"{data}-ce"]().augment.views == 1


@pytest.mark.parametrize("data", SELF_SUPERVISED_EPOCHS)
def test_self_supervised_runs_are_those_of_appendix_b3(data: str) -> None:
    tcl, simclr = RECIPES[f"{data}-tcl-ssl"](), RECIPES[f"{data}-simclr"]()
    for config, views in ((tcl, 3), (simclr, 2)):
        optim = config.optim
        assert (optim.name, optim.lr, optim.batch_images, optim.weight_decay) == ("lars", 0.4, 256, 1e-4)
        assert (optim.epochs, optim.momentum) == (SELF_SUPERVISED_EPOCHS[data], 0.9)
        assert config.model.encoder == "resnet18"
        assert (config.augment.policy, config.augment.views) == ("simaugment", views)
        assert not config.method.settings.needs_labels
        assert (knobs(config)["projector_hidden"], knobs(config)["projector_dim"]) == (2048, 256)
    assert isinstance(tcl.method.settings, TCL.Settings)
    assert isinstance(simclr.method.settings, SimCLR.Settings)
    assert (tcl.method.settings.k1, tcl.method.settings.k2) == (1.0, 1.5)
    assert tcl.method.settings.temperature == simclr.method.settings.temperature


def test_imagenet_is_224_pixels_and_cifar_its_own_32() -> None:
    assert {name: RECIPES[name]().data.image_size for name in RECIPES if name.startswith("imagenet100")} == {
        name: 224 for name in RECIPES if name.startswith("imagenet100")
    }
    assert RECIPES["cifar10-tcl"]().data.image_size is None


@pytest.mark.parametrize("name", ACCURACIES)
def test_the_summary_quotes_the_papers_number(name: str) -> None:
    assert f"the paper has {ACCURACIES[name]}." in summary(RECIPES[name])


def test_an_unknown_recipe_names_the_nearest() -> None:
    with pytest.raises(UserError, match="unknown recipe 'cifar10-tlc'; did you mean cifar10-tcl"):
        find_recipe("cifar10-tlc")
