"""The recipes: all complete, the paper's with the values of its appendix B."""

import pytest

from contune.config import Config
from contune.data import DATASETS
from contune.data.augment import build_policy
from contune.models.encoders import check_encoder_name
from contune.recipes import RECIPES, summary

SUPERVISED = {
    # data: (encoder, batch counted in views, lr of SupCon, lr of TCL, k1, augmentation)
    "cifar10": ("resnet50", 128, 0.1, 0.1, 5000.0, "autoaugment"),
    "cifar100": ("resnet50", 256, 0.2, 0.2, 4000.0, "autoaugment"),
    "fmnist": ("resnet50", 128, 0.09, 0.09, 5000.0, "crop-flip"),
    "imagenet100": ("resnet18", 256, 0.2, 0.3, 4000.0, "autoaugment"),
}


def knobs(config: Config) -> dict[str, object]:
    return config.to_dict()["method"]


def test_every_recipe_is_complete() -> None:
    for name, recipe in RECIPES.items():
        config = recipe().check()
        assert config == recipe(), name
        assert config is not recipe(), "a recipe returns a new config each time"
        assert config.data.name in {*DATASETS, "images"}
        for text in config.augment.per_view or (config.augment.policy,):
            build_policy(text, image_size=config.data.image_size or 32, channels=1 if name.startswith("fm") else 3)
        check_encoder_name(config.model.encoder)
        assert summary(recipe).endswith(".")
        assert len(summary(recipe)) <= 110


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
    entropy = RECIPES[f"{data}-ce{suffix}"]()
    assert (entropy.optim.epochs, entropy.augment.views) == (epochs + 50, 1), "the same total of epochs"
    assert tcl.differences(supcon) == sorted(
        {"method.k1", "method.k2", "method.name", "method.r", "method.supervised", "method.variant"}
        | ({"optim.lr"} if lr_tcl != lr_supcon else set())
    )
