"""A whole run from Python: its files, its report, an evaluation afterwards, and disks that fail on the way."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest
from command_line import read_json, train
from pictures import write_classes, write_flat

from contune import files
from contune.errors import UserError
from contune.eval.measures import START
from contune.recipes import RECIPES
from contune.report.page import write_report
from contune.run import RunFolder
from contune.training import log, session
from contune.training.session import evaluate_run

SMALL = ("data.val_fraction=0.6", "eval.linear=none", "eval.start=false", "run.loggers=none")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunFolder, dict[str, Any], dict[str, Any]]:
    """A run of five steps: its folder, its result, and what its report was drawn from."""
    folder, drawn = RunFolder(tmp_path_factory.mktemp("session") / "run"), {}

    def write_report(path: Path, **values: Any) -> None:
        drawn.update(values)
        path.write_text("a report")

    small = ["optim.epochs=1", "data.val_fraction=0.8", "optim.batch_images=32", "eval.linear=fast"]
    config = RECIPES["digits"]().override(small)
    result = session.train(config, folder, write_report=write_report)
    return folder, json.loads(json.dumps(result)), drawn


def test_a_run_returns_its_result_and_draws_its_report(
    finished: tuple[RunFolder, dict[str, Any], dict[str, Any]],
) -> None:
    folder, result, drawn = finished
    assert folder.report_file.read_text() == "a report"
    assert result == read_json(folder.result_file)
    assert result["linear_top1"] == result["measures"][0]["top1"]
    assert result["last_logged"].keys() >= {"loss", "effective_rank", "positive_gradient"}
    assert len(result["curves"]["loss"]) == 5
    assert list(result["stages"]) == ["data", "training", "measuring", "report"]
    assert drawn["predicted_by"] == "linear-fast"
    assert "skipped" in drawn, "the other parts have no default"
    right = (drawn["predicted_M"] == drawn["images"].labels).double().mean().item()
    assert 100 * right == pytest.approx(result["linear_top1"])


def test_a_finished_run_is_reused_and_evaluated_again(
    finished: tuple[RunFolder, dict[str, Any], dict[str, Any]],
) -> None:
    folder, result, _ = finished
    before = {path: path.stat().st_mtime_ns for path in folder.path.iterdir()}
    assert session.train(folder.config(), str(folder.path)) == result
    trained = [score for score in result["measures"] if not score["name"].startswith(START)]
    again = evaluate_run(str(folder.path))
    assert again["measures"] == trained != result["measures"]
    assert again["retrieval"] == result["retrieval"] != []
    assert evaluate_run(folder.path, "eval.knn_k=1")["measures"] != trained
    assert {path: path.stat().st_mtime_ns for path in folder.path.iterdir()} == before
    for setting in ("optim.epochs=2", "data.resize=pad"):
        with pytest.raises(UserError, match="is fixed"):
            evaluate_run(folder, setting)
    with pytest.raises(UserError, match="training images"):
        evaluate_run(folder, ["eval.split=val", "data.val_fraction=0.5"])
    with pytest.raises(UserError, match="training images"):
        evaluate_run(folder, ["eval.split=val", "data.label_column=x"])
    with pytest.raises(UserError, match="unseen"):
        evaluate_run(folder, "data.unseen_classes=0.5")
    with pytest.raises(UserError, match=r"another method\.k1, optim\.lr"):
        session.train(folder.config().override(["method.k1=7", "optim.lr=0.2"]), folder)


def test_without_a_split_nothing_is_evaluated_and_without_labels_a_later_evaluation_adds_a_classifier(
    tmp_path: Path,
) -> None:
    flat, classes, folder = write_flat(tmp_path / "flat"), write_classes(tmp_path / "classes"), tmp_path / "run"
    settings = ("model.encoder=resnet-mini", "data.image_size=8", "optim.batch_images=8", "optim.epochs=1")
    result = train(folder, "images-ssl", f"data.path={flat}", "data.test_fraction=0", "method.name=simclr", *settings)
    assert result["measures"] == []
    assert not (folder / "classifier.safetensors").exists()
    with pytest.raises(UserError, match="no test split"):
        evaluate_run(folder)
    measured = evaluate_run(folder, [f"data.path={classes}", "data.test_fraction=0.5"])
    assert {one["name"] for one in measured["measures"]} >= {"linear-fast", "knn"}
    assert (folder / "classifier.safetensors").exists()


def test_retrieval_on_unseen_classes(tmp_path: Path) -> None:
    config = RECIPES["digits"]().override([*SMALL, "optim.epochs=0", "data.unseen_classes=0.3"])
    result = session.train(config, tmp_path / "run", write_report=write_report)
    seen, unseen = result["retrieval"]
    assert (seen["name"], seen["num_classes"], unseen["name"], unseen["num_classes"]) == ("seen", 7, "unseen", 3)
    assert unseen["num_images"] == 533, "the digits 7, 8 and 9 of all splits"
    assert unseen["values"]["recall@1"] > 80
    shown = (tmp_path / "run" / "report.html").read_text()
    assert "Unseen classes" in shown
    assert f"{unseen['values']['map@r']:.2f}" in shown
    assert len(evaluate_run(tmp_path / "run", "eval.split=val")["retrieval"]) == 1, "choices are made on it"


def test_attributes_set_from_python_are_checked(tmp_path: Path) -> None:
    config = RECIPES["digits"]()
    config.optim.epochs = -3
    with pytest.raises(UserError, match=r"optim\.epochs"):
        session.train(config, tmp_path / "run")


@pytest.mark.parametrize(
    "name", ["config.json", "metrics.jsonl", "checkpoint.pt", "encoder.safetensors", "result.json"]
)
def test_a_full_disk_stops_the_run_with_an_error_and_the_same_command_finishes_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, sync = RunFolder(tmp_path / "run"), files.sync

    def failing(path: Path) -> None:
        if path.name == name + files.PART:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(path)

    def train_it() -> dict[str, Any]:
        config = RECIPES["digits"]().override([*SMALL, "optim.epochs=0"])
        return session.train(config, folder, write_report=lambda path, **values: path.write_text("a report"))

    with monkeypatch.context() as patch:
        for module in (files, log):
            patch.setattr(module, "sync", failing)
        with pytest.raises(UserError, match=rf"\({name}\): No space left"):
            train_it()
    assert not (folder.path / name).exists()
    assert not list(folder.path.glob("*.part"))
    assert train_it()["measures"]
    assert (folder.path / name).exists()
