"""The config tree: overrides of every type, what is refused, save and load, what stands for a run."""

from pathlib import Path

import pytest

from contune.config import MACHINE_SETTINGS, Config
from contune.errors import UserError, unknown
from contune.recipes import RECIPES


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe_comes_back_from_its_file(recipe: str, tmp_path: Path) -> None:
    config = RECIPES[recipe]()
    config.save(tmp_path / "config.json")
    loaded = Config.load(tmp_path / "config.json")
    assert loaded == config
    assert loaded.fingerprint() == config.fingerprint()
    assert loaded.differences(config) == []


@pytest.mark.parametrize(
    ("assignment", "value"),
    [
        ("optim.epochs=7", 7),
        ("optim.lr=1e-3", 1e-3),
        ("optim.lr=2", 2.0),
        ("eval.online=yes", True),
        ("eval.online=OFF", False),
        ("data.path=a folder/with=signs", "a folder/with=signs"),
        ("data.path=none", None),
        ("data.image_size=64", 64),
        ("data.image_size=", None),
        ("model.encoder=resnet18", "resnet18"),
        ("augment.per_view=none, digits scale=0.9", ("none", "digits scale=0.9")),
        ("method.k1=12", 12.0),
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


def test_the_method_comes_first_wherever_it_stands() -> None:
    config = Config().override(["method.temperature=0.5", "method.name=simclr"])
    assert config.method.name == "simclr"
    assert config.to_dict()["method"] == {
        "name": "simclr", "projector_hidden": 2048, "projector_dim": 256, "temperature": 0.5,
    }  # fmt: skip


def test_the_same_method_again_keeps_its_knobs() -> None:
    config = Config().override(["method.k1=3"]).override(["method.name=tcl"])
    assert config.to_dict()["method"]["k1"] == 3.0
    assert config.override(["method.name=supcon"]).override(["method.name=tcl"]).to_dict()["method"]["k1"] == 5000.0


@pytest.mark.parametrize(
    ("assignment", "sentence"),
    [
        ("optim.epoch=3", "unknown setting 'optim.epoch'; did you mean optim.epochs"),
        ("epochs=3", "unknown setting 'epochs'; did you mean optim.epochs"),
        ("method.margin=1", "unknown setting 'method.margin'"),
        ("method.name=supcom", "unknown method 'supcom'; did you mean supcon"),
        ("optim.name=sdg", "unknown optim.name 'sdg'; did you mean sgd"),
        ("data.channels=2", "data.channels must be 1 or 3, got 2"),
        ("optim.epochs=1.5", "optim.epochs must be a whole number, got '1.5'"),
        ("optim.lr=fast", "optim.lr must be a number, got 'fast'"),
        ("optim.lr=nan", "optim.lr must be above 0, got nan"),
        ("optim.lr=inf", "optim.lr must be finite, got inf"),
        ("optim.momentum=1.5", "optim.momentum must be 1 or less, got 1.5"),
        ("eval.online=maybe", "eval.online must be true or false, got 'maybe'"),
        ("data.val_fraction=-0.1", "data.val_fraction must be 0 or more, got -0.1"),
        ("optim.epochs", "'optim.epochs' is not KEY=VALUE; write for example optim.epochs=100"),
        ("=3", "'=3' is not KEY=VALUE"),
    ],
)
def test_what_is_refused(assignment: str, sentence: str) -> None:
    with pytest.raises(UserError) as caught:
        Config().override([assignment])
    assert str(caught.value).startswith(sentence)


def test_settings_that_need_each_other() -> None:
    with pytest.raises(UserError, match=r"names 1 policies for augment\.views=2; give one for each view"):
        Config().override(["augment.per_view=none"])


def test_the_fingerprint_stands_for_what_is_computed() -> None:
    plain = Config().fingerprint()
    assert len(plain) == 8
    changed = {
        "run.device": "cpu", "run.log_every": "3", "run.checkpoint_seconds": "1", "run.tensorboard": "false",
        "run.report": "false", "data.workers": "0", "data.resident_gib": "0", "run.engine": "eager",
        "run.autotune": "false", "run.gradients": "false", "run.on_nan": "skip",
    }  # fmt: skip
    assert set(MACHINE_SETTINGS) <= changed.keys()
    for key in MACHINE_SETTINGS:
        assert Config().override([f"{key}={changed[key]}"]).fingerprint() == plain, key
    for assignment in ("run.seed=1", "optim.lr=0.3", "method.k1=1", "method.name=supcon", "data.image_size=9"):
        assert Config().override([assignment]).fingerprint() != plain, assignment


def test_differences_are_named_and_machine_settings_are_none() -> None:
    other = Config().override(["method.name=supcon", "optim.lr=0.3", "run.log_every=7", "data.workers=1"])
    assert Config().differences(other) == [
        "method.k1", "method.k2", "method.name", "method.supervised", "method.variant", "optim.lr",
    ]  # fmt: skip
    assert Config().differences(Config()) == []


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "is not a config that contune wrote"),
        ("[]", "is not a config that contune wrote"),
        ("\xff", "is not a config that contune wrote"),
        ('{"optim": {"epochs": "many"}}', "is not a config that contune wrote"),
        ('{"optim": 3}', "is not a config that contune wrote"),
        ('{"optimizer": {}}', "unknown section 'optimizer'; did you mean optim"),
        ('{"optim": {"learning_rate": 1}}', "unknown setting 'optim.learning_rate'"),
        ('{"method": {"name": "nothing"}}', "unknown method 'nothing'"),
    ],
)
def test_files_that_are_no_config(text: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(text.encode("latin1"))
    with pytest.raises(UserError, match=sentence):
        Config.load(tmp_path / "config.json")


def test_keys_are_all_that_may_be_set() -> None:
    keys = Config().keys()
    assert {"data.name", "augment.views", "model.encoder", "method.name", "method.k1", "optim.lr"} <= set(keys)
    assert "method.settings" not in keys


def test_a_name_with_nothing_near_lists_them_all() -> None:
    assert str(unknown("fruit", "xyz", ["pear", "apple"])) == "unknown fruit 'xyz'; choose from apple, pear"
    assert str(unknown("fruit", "applle", ["pear", "apple"])) == "unknown fruit 'applle'; did you mean apple?"


def test_a_path_may_be_a_text(tmp_path: Path) -> None:
    Config().override("optim.epochs=1").save(str(tmp_path / "config.json"))
    assert Config.load(str(tmp_path / "config.json")).optim.epochs == 1


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"^cannot read a config at .*c\.json: No such file or directory; give the config"
    ):
        Config.load(tmp_path / "c.json")
    with pytest.raises(UserError, match=r"^cannot read a config at .*: Is a directory; give the config"):
        Config.load(tmp_path)
