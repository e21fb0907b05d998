"""Every command from end to end, on one small run."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from command_line import PLAIN, Outcome, contune, read_json, read_lines, start, train
from pictures import write_classes, write_flat, write_picture

import contune as library
from contune.cli import app
from contune.config import Config
from contune.methods import METHODS
from contune.recipes import RECIPES

QUICK = ("model.encoder=resnet-mini", "data.image_size=8", "optim.batch_images=16", "optim.epochs=1")
KEYS = {key for name in METHODS for key in Config().override([f"method.name={name}"]).flat()}
COMMANDS = [command.name or command.callback.__name__ for command in app.registered_commands if command.callback]


def succeed(*arguments: str | Path) -> Outcome:
    outcome = contune(*arguments)
    assert outcome.code == 0, outcome.err
    return outcome


def test_version_and_recipes() -> None:
    with start("--version") as process:  # python -m contune
        assert process.communicate()[0] == f"contune {library.__version__}\n"
    assert all(command in succeed("--help").out for command in COMMANDS)
    listed = {line.split()[0] for line in succeed("recipes").out.splitlines() if line.strip()}
    assert set(RECIPES) <= listed
    fewer = succeed("recipes", "fmnist").out
    assert ("fmnist-tcl" in fewer, "cifar" in fewer) == (True, False)
    assert ["method.k1", "500", "auto"] in [line.split() for line in succeed("recipes", "digits-tcl").out.splitlines()]


def test_settings_are_listed_with_type_default_and_a_sentence() -> None:
    printed = succeed("settings").out
    for key, value in {"optim.lr": "0.1", "method.k1": "auto", "data.path": "none", "run.report": "true"}.items():
        assert re.search(rf"^{key}={value}  \(.+\)\n    \w+ \w+", printed, re.MULTILINE)
    assert {line.split("=")[0] for line in printed.splitlines()[::2]} == set(KEYS)
    assert [line.split()[0] for line in succeed("settings", "optim.lr").out.splitlines()[::2]] == ["optim.lr=0.1"]
    assert_sentence(contune("settings", "optim.lrr"), "optim.lr")


def test_train_writes_every_file_of_the_contract(digits_run: tuple[Path, str]) -> None:
    folder, printed = digits_run
    names = {path.name.partition(".tfevents")[0] for path in folder.iterdir()}
    assert names == {
        "config.json",
        "metrics.jsonl",
        "checkpoint.pt",
        "encoder.safetensors",
        "result.json",
        "report.html",
        "classifier.safetensors",
        "events.out",
    }
    result = read_json(folder / "result.json")
    assert result["linear_top1"] > 80
    assert result["knn_top1"] > 70
    assert {
        "linear_protocol",
        "knn_protocol",
        "seconds",
        "views_per_second",
        "versions",
        "seed",
        "git_revision",
        "hardware",
        "split",
        "epochs",
        "measures",
        "method",
        "data",
        "encoder",
        "config",
        "finished",
    } <= result.keys()
    assert [line["step"] for line in read_lines(folder)] == [4, 8, 10]
    assert [measure["name"] for measure in result["measures"]] == [
        "linear-fast",
        "knn",
        "start-linear-fast",
        "start-knn",
        "pixels-linear-fast",
        "pixels-knn",
    ]
    for measure in result["measures"]:
        assert f"{measure['top1']:.2f}" in printed
        assert printed.count(measure["protocol"]) == (not measure["name"].startswith(("pixels-", "start-")))
    assert library.load_encoder(folder)(torch.zeros(3, 1, 20, 20, dtype=torch.uint8)).shape == (3, 256)


def test_the_default_folder_is_named_after_recipe_and_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for finished in (False, True):
        outcome = succeed("train", "digits-ce", "optim.epochs=0", "eval.linear=none", *PLAIN)
        assert ("already finished" in outcome.out) == finished
        assert "kNN" in outcome.out
    (name,) = (path.name for path in (tmp_path / "runs").iterdir())
    assert len(name) == len("digits-ce-") + 8


def test_eval_changes_the_protocol(digits_run: tuple[Path, str], tmp_path: Path) -> None:
    folder, _ = digits_run
    printed = succeed("eval", folder, "eval.linear=paper", "eval.linear_epochs=1", "eval.knn_k=3").out
    assert "full probe" in printed
    assert "k=3, T=0.1" in printed
    photos = write_classes(tmp_path / "photos", gray=True)
    assert "kNN" in succeed("eval", folder, "data.name=images", f"data.path={photos}").out


def test_doctor() -> None:
    assert "✓ memory" in succeed("doctor").out
    assert contune("doctor", "optim.batch_images=9999").code == 1


@pytest.mark.parametrize(("num_classes", "gray"), [(2, True), (7, False)])
def test_a_folder_of_labelled_images(num_classes: int, gray: bool, tmp_path: Path) -> None:
    write_classes(tmp_path / "photos", num_classes=num_classes, gray=gray)
    result = train(tmp_path / "run", "images", f"data.path={tmp_path / 'photos'}", *QUICK)
    assert library.load_encoder(tmp_path / "run").spec.channels == (1 if gray else 3)
    assert (result["knn_top5"] is None) == (num_classes == 2)
    if num_classes == 2:
        assert result["linear_top1"] == 100.0, "dark and bright"


def test_an_unexpected_error_leaves_a_traceback_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr("contune.recipes.find_recipe", lambda name: 1 / 0)
    outcome = contune("train", "digits")
    assert outcome.code == 1
    assert "ZeroDivisionError" in outcome.err
    (file,) = tmp_path.glob("contune-*.txt")
    assert str(file) in outcome.err
    assert "Traceback" in file.read_text()
    with pytest.raises(ZeroDivisionError):
        contune("train", "digits", "--debug")


# What a person gets wrong: a sentence that says so, exit code 2, no traceback, nothing left on the disk.


@pytest.fixture
def elsewhere(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder, and no datasets in the usual places."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
    monkeypatch.delenv("CONTUNE_DATA", raising=False)
    return tmp_path


def assert_sentence(outcome: Outcome, word: str) -> None:
    assert outcome.code == 2, outcome
    assert outcome.err.startswith("contune: ")
    assert outcome.err.count("\n") == 1
    assert word in outcome.err


def listing(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))


WRONG = [
    ("train digitz", "did you mean digits"),
    ("train method.name=tlc", "did you mean tcl"),
    ("train model.encoder=resnet19", "resnet19"),
    ("train augment.policy=autoagument", "did you mean autoaugment"),
    ("train run.device=meta", "run.device=auto"),
    ("train data.image_size=100000", "8192"),
    ("train data.name=images", "data.path"),
    ("train data.path=photos", "digits"),
    ("train data.classes=list.txt", "imagenet100"),
    ("train cifar10-tcl", "cifar10"),
    ("train optim.batch_images=9999", "898 training images"),
    ("train optim.balance=weights method.name=simclr", "one label"),
    ("train eval.split=val", "data.val_fraction"),
    ("train optim.patience=2", "validation split"),
    ("train run.keep=best eval.every=1", "validation split"),
    ("train --parallel 2", "--seeds"),
    ("train --seeds 0,x", "whole number"),
    ("train --seeds -1", "--seeds"),
    ("train --seeds 0,1 run.seed=3", "run.seed"),
    ("eval nowhere", "nowhere"),
    ("embed nowhere empty", "nowhere"),
    ("check nowhere", "nowhere"),
    ("check ~nosuchuser/photos", "nosuchuser"),
    ("report nowhere", "nowhere"),
    ("analyze nowhere", "nowhere"),
    ("export nowhere --to timm", "nowhere"),
]


@pytest.mark.parametrize(("command", "word"), WRONG)
def test_a_wrong_command_is_a_sentence_and_writes_nothing(command: str, word: str, elsewhere: Path) -> None:
    assert_sentence(contune(*command.split()), word)
    assert listing(elsewhere) == set()


@pytest.mark.parametrize(
    "command", ["train --otu x", "evaluate", "eval", "recipes --digits", "export run", "tune --trials 0"]
)
def test_wrong_usage_is_code_2_too(command: str, elsewhere: Path) -> None:
    outcome = contune(*command.split())
    assert outcome.code == 2
    assert "Usage:" in outcome.err
    assert listing(elsewhere) == set()


@pytest.mark.parametrize("command", ["train --seeds 0,1", "tune", "experiment ci-digits"])
def test_commands_with_their_own_processes_refuse_torchrun(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert_sentence(contune(*command.split()), "torchrun")


def truncated(folder: Path) -> None:
    picture = write_classes(folder) / "class0" / "0.jpg"
    write_picture(picture, seed=0, size=64)
    picture.write_bytes(picture.read_bytes()[:-400])


FOLDERS: list[tuple[Callable[[Path], object], tuple[str, ...], str]] = [
    (Path.mkdir, (), "no image"),
    (truncated, (), "0.jpg"),
    (truncated, ("model.encoder=resnet19",), "resnet19"),
    (truncated, ("data.resident_gib=0", "data.workers=0"), "0.jpg"),
    (write_flat, (), "images-ssl"),
    (write_flat, ("method.name=simclr", "optim.balance=sampler"), "label"),
    (lambda folder: folder.write_text("x"), (), "folder"),
]


@pytest.mark.parametrize(("make", "arguments", "word"), FOLDERS)
def test_images_that_cannot_be_trained_on(
    make: Callable[[Path], object], arguments: tuple[str, ...], word: str, elsewhere: Path
) -> None:
    make(elsewhere / "photos")
    before = listing(elsewhere)
    quick = ("model.encoder=resnet-mini", "data.image_size=8", "optim.batch_images=8", "optim.epochs=1")
    assert_sentence(contune("train", "images", "data.path=photos", *quick, *PLAIN, *arguments), word)
    if "data.resident_gib=0" not in arguments:  # streamed images are decoded during training
        assert listing(elsewhere) == before


def test_folders_and_settings_of_other_runs_are_refused(digits_run: tuple[Path, str], elsewhere: Path) -> None:
    run = digits_run[0]
    (elsewhere / "file").write_text("x")
    (elsewhere / "full").mkdir()
    (elsewhere / "full" / "letter.txt").write_text("x")
    before = listing(elsewhere) | listing(run)
    for out, word in (("file", "file"), ("full", "not empty"), (run, "optim.epochs"), ("file/run", "cannot write")):
        assert_sentence(contune("train", "--out", out), word)
    for setting in ("model.encoder=resnet50", "data.image_size=64", "method.k1=3", "optim.epochs=3", "eval.knn=3"):
        assert_sentence(contune("eval", run, setting), setting.partition("=")[0])
    assert listing(elsewhere) | listing(run) == before
