"""The config tree: overrides of every type, bad values, save and load, fingerprints."""

from pathlib import Path
from typing import Any

import pytest

from contune.config import MACHINE_SETTINGS, Config, spelled_out
from contune.errors import UserError
from contune.recipes import RECIPES
from contune.settings import as_text


def test_every_recipe_comes_back_from_its_file(tmp_path: Path) -> None:
    for name, recipe in RECIPES.items():
        recipe().save(tmp_path / "config.json")
        assert Config.load(tmp_path / "config.json") == recipe(), name


@pytest.mark.parametrize(
    ("assignment", "value"),
    [
        ("optim.epochs=7", 7),
        ("eval.online=yes", True),
        ("eval.online=OFF", False),
        ("data.path=a folder/with=signs", "a folder/with=signs"),
        ("data.path=none", None),
        ("augment.per_view=none, digits scale=0.9", ("none", "digits scale=0.9")),
        ("method.supervised=false", False),
        ("method.projector_hidden=none", None),
        (" optim.epochs = 3 ", 3),
    ],
)
def test_overrides_of_every_type(assignment: str, value: object) -> None:
    config = Config().override([assignment])
    section, _, name = assignment.partition("=")[0].strip().partition(".")
    found = config.to_dict()[section][name]
    assert found == value
    assert type(found) is type(value)


def test_the_command_line_writes_keys_in_full() -> None:
    assert spelled_out(["seed=5", "method=supcon", "views=3"]) == [
        "run.seed=5",
        "method.name=supcon",
        "augment.views=3",
    ]
    assert spelled_out(["momentum=0.5"]) == ["momentum=0.5"], "some methods have one too"
    assert as_text(1234.5678) == "1234.5678"


def test_one_policy_replaces_those_of_each_view() -> None:
    assert RECIPES["cifar10-byol"]().override("policy=none").augment.per_view == ()


def test_configs_with_the_old_sampler_keep_their_meaning() -> None:
    tree = Config().to_dict()
    del tree["optim"]["balance"], tree["data"]["imbalance"]
    for sampler, balance in (("shuffle", "none"), ("balanced", "sampler")):
        tree["data"]["sampler"] = sampler
        assert Config.from_dict(tree) == Config().override([f"optim.balance={balance}"])


def test_the_method_comes_first_and_brings_its_settings() -> None:
    simclr = Config().override(["method.temperature=0.5", "method.name=simclr"]).to_dict()["method"]
    expected = {"projector_hidden": 2048, "projector_dim": 256, "cross_entropy": 0.0, "temperature": 0.5}
    assert simclr == {"name": "simclr", **expected}
    config = Config().override(["method.k1=3"]).override(["method.name=tcl"])
    assert config.to_dict()["method"]["k1"] == 3.0
    assert config.override(["method.name=supcon"]).override(["method.name=tcl"]).to_dict()["method"]["k1"] == "auto"


@pytest.mark.parametrize(
    ("assignment", "words"),
    [
        ("optim.epoch=3", "did you mean optim.epochs"),
        ("method.margin=1", "method.margin"),
        ("method.name=supcom", "did you mean supcon"),
        ("optim.name=sdg", "did you mean sgd"),
        ("data.channels=65", "64 or less"),
        ("optim.epochs=1.5", "whole number"),
        ("optim.lr=fast", "a number"),
        ("optim.lr=nan", "0 or more"),
        ("optim.lr=inf", "finite"),
        ("eval.online=maybe", "true or false"),
        ("data.val_fraction=-0.1", "0 or more"),
        ("augment.per_view=none", "augment.views=2"),
        ("optim.epochs", "KEY=VALUE"),
    ],
)
def test_bad_settings(assignment: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        Config().override([assignment])


def test_the_fingerprint_stands_for_what_is_computed() -> None:
    plain = Config().fingerprint()
    assert len(plain) == 8
    for assignment in ("run.device=cpu", "run.log_every=3", "run.report=false", "data.workers=0", "run.engine=eager"):
        assert assignment.partition("=")[0] in MACHINE_SETTINGS
        assert Config().override([assignment]).fingerprint() == plain, assignment
    for assignment in (
        "run.seed=1",
        "optim.lr=0.3",
        "method.k1=1",
        "method.name=supcon",
        "data.image_size=9",
        "method.r=1",
    ):
        assert Config().override([assignment]).fingerprint() != plain, assignment


def test_a_number_may_be_a_word_and_a_config_may_lack_a_setting() -> None:
    config = Config().override(["method.k1=auto", "method.k2=1.5"])
    settings: Any = config.method.settings
    assert (settings.k1, settings.k2, settings.r) == ("auto", 1.5, 0.3)
    assert Config.from_dict(config.to_dict()).differences(config) == []
    with pytest.raises(UserError, match="k1"):
        Config().override(["method.k1=automatic"])
    old = Config().to_dict()
    del old["method"]["r"]
    assert Config.from_dict(old) == Config()


def test_differences_are_named_and_machine_settings_are_none() -> None:
    other = Config().override(["method.name=supcon", "optim.lr=0.3", "run.log_every=7", "data.workers=1"])
    assert Config().differences(other) == [
        "method.k1",
        "method.k2",
        "method.name",
        "method.r",
        "method.supervised",
        "method.variant",
        "optim.lr",
    ]
    assert Config().differences(Config()) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not a config"),
        ("[]", "not a config"),
        ("\xff", "not a config"),
        ('{"optim": {"epochs": "many"}}', "optim.epochs"),
        ('{"optim": {"lr": [0.1]}}', "optim.lr"),
        ('{"augment": {"per_view": [1, 2]}}', "augment.per_view"),
        ('{"optimizer": {"lr": 1}}', "optimizer"),
        ('{"optim": {"learning_rate": 1}}', "optim.learning_rate"),
        ('{"method": {"name": "nothing"}}', "nothing"),
        ('{"method": {"name": ["tcl"]}}', "method"),
    ],
)
def test_files_that_are_no_config(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(text.encode("latin1"))
    with pytest.raises(UserError, match=words):
        Config.load(tmp_path / "config.json")
    for path in (tmp_path / "absent.json", tmp_path):
        with pytest.raises(OSError, match=path.name):
            Config.load(path)
