"""Training and measuring from Python: folders as texts, and configs whose attributes were set to anything."""

from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import PLAIN, contune

from contune.config import Config
from contune.errors import UserError
from contune.recipes import RECIPES
from contune.run import RunFolder
from contune.train.session import evaluate_run, train

QUICK = ("optim.epochs=0", "data.val_fraction=0.8", "eval.linear=none", *PLAIN)


def test_folders_may_be_texts(tmp_path: Path) -> None:
    config = RECIPES["digits"]().override(QUICK)
    result = train(config, str(tmp_path / "run"))
    assert train(config, tmp_path / "run")["finished"] == result["finished"]  # read, not trained again
    measured = evaluate_run(str(tmp_path / "run"))
    assert measured["measures"] == result["measures"]
    assert evaluate_run(tmp_path / "run", "eval.knn_k=1")["measures"] != result["measures"]
    with pytest.raises(UserError, match=r"optim\.epochs was settled when the encoder was trained"):
        evaluate_run(tmp_path / "run", "optim.epochs=1")


@pytest.mark.parametrize(("key", "value"), [("optim.epochs", -3), ("data.sampler", "banana"), ("optim.lr", 0.0)])
def test_attributes_are_checked_as_on_the_command_line(key: str, value: object, tmp_path: Path) -> None:
    config = RECIPES["digits"]()
    section, name = key.split(".")
    setattr(getattr(config, section), name, value)
    with pytest.raises(UserError) as refused:
        train(config, tmp_path / "run")
    assert str(refused.value) in contune("train", "digits", f"{key}={value}", "--out", tmp_path / "run").err
    assert not (tmp_path / "run").exists()


def other_type(config: Config) -> None:
    config.optim.epochs = "many"  # type: ignore[assignment]


def other_method(config: Config) -> None:
    config.method.name = "banana"


@pytest.mark.parametrize(
    ("change", "sentence"), [(other_type, "optim.epochs cannot be 'many'"), (other_method, "unknown method 'banana'")]
)
def test_attributes_that_no_command_line_could_set(
    change: Callable[[Config], None], sentence: str, tmp_path: Path
) -> None:
    config = RECIPES["digits"]()
    change(config)
    with pytest.raises(UserError, match=sentence):
        train(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_one_process_at_a_time_trains_in_a_folder(tmp_path: Path) -> None:
    config = RECIPES["digits"]().override(QUICK)
    folder = RunFolder(tmp_path / "run")
    with (
        folder.opened(config),
        pytest.raises(UserError, match=r"^another process writes to .*/run; wait for its end, or give another folder"),
    ):
        train(config, folder)
    assert not folder.result_file.exists()
    train(config, folder)
    assert folder.result_file.exists()
