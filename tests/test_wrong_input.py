"""What a person gets wrong: one sentence that says so, exit code 2, no traceback, nothing left on the disk."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import PLAIN, Outcome, contune
from pictures import write_classes, write_flat, write_picture


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty working folder, and no datasets in the usual places."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
    monkeypatch.delenv("CONTUNE_DATA", raising=False)


def assert_sentence(outcome: Outcome, word: str) -> None:
    assert outcome.code == 2, outcome
    assert outcome.err.startswith("contune: ")
    assert outcome.err.count("\n") == 1
    assert word in outcome.err


def listing(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))


COMMANDS = [
    ("train digitz", "did you mean digits"),
    ("train method.name=tlc", "did you mean tcl"),
    ("train method.name=supcon method.variant=inside", "did you mean in"),
    ("train model.encoder=resnet19", "resnet19"),
    ("train augment.policy=autoagument", "did you mean autoaugment"),
    ("train augment.policy=digits~rotate=3", "did you mean rotation"),
    ("train augment.policy=digits~rotation=much", "number"),
    ("train augment.policy=digits~scale=2,1", "scale"),
    ("train model.norm=layer", "choose from batch, group"),
    ("train model.encoder=test_vit model.stem=cifar data.image_size=32", "ResNet"),
    ("train run.device=gpu", "run.device=auto"),
    ("train data.name=cifar11", "did you mean cifar10"),
    ("train data.name=images", "data.path"),
    ("train data.path=photos", "digits"),
    ("train data.classes=list.txt", "imagenet100"),
    ("train cifar10-tcl", "cifar10"),
    ("train method.name=cross-entropy method.label_smoothing=2", "1 or less"),
    ("train optim.batch_images=9999", "898 training images"),
    ("train data.sampler=balanced optim.batch_images=60", "data.images_per_class"),
    ("train eval.split=val", "data.val_fraction"),
    ("train --parallel 2", "--seeds"),
    ("train --seeds 0,x", "whole number"),
    ("train --seeds 0,1 run.seed=3", "run.seed"),
    ("doctor optim.lr=0", "above 0"),
    ("recipes cifar", "did you mean cifar10"),
    ("eval nowhere", "nowhere"),
    ("embed nowhere empty", "nowhere"),
    ("check nowhere", "nowhere"),
    ("report nowhere", "nowhere"),
    ("analyze nowhere", "nowhere"),
    ("export nowhere --to timm", "nowhere"),
    ("tune --how guess", "guess"),
    ("tune --how paper --trials 3", "--how search"),
    ("tune --how search --k1 1,x", "number"),
    ("experiment ci-digit", "did you mean ci-digits"),
    ("experiment --draw", "name an experiment"),
    ("experiment ci-digits --seeds 0", "--seeds"),
    ("experiment ci-digits --seeds 99999", "--seeds"),
]


@pytest.mark.parametrize(("command", "word"), COMMANDS)
def test_commands(command: str, word: str, tmp_path: Path) -> None:
    """A tilde stands for a space inside an argument."""
    assert_sentence(contune(*(part.replace("~", " ") for part in command.split())), word)
    assert listing(tmp_path) == set()


@pytest.mark.parametrize("command", ["train --otu x", "evaluate", "eval", "recipes --digits", "export run"])
def test_wrong_usage_is_code_2_too(command: str, tmp_path: Path) -> None:
    outcome = contune(*command.split())
    assert outcome.code == 2
    assert "Usage:" in outcome.err
    assert listing(tmp_path) == set()


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
    (write_flat, ("method.name=simclr", "eval.online=true"), "labels"),
    (write_flat, ("method.name=simclr", "data.sampler=balanced"), "labels"),
    (lambda folder: folder.write_text("x"), (), "folder"),
]


@pytest.mark.parametrize(("make", "arguments", "word"), FOLDERS)
def test_images(make: Callable[[Path], object], arguments: tuple[str, ...], word: str, tmp_path: Path) -> None:
    make(tmp_path / "photos")
    before = listing(tmp_path)
    quick = ("model.encoder=resnet-mini", "data.image_size=8", "optim.batch_images=8", "optim.epochs=1")
    assert_sentence(contune("train", "images", "data.path=photos", *quick, *PLAIN, *arguments), word)
    if "data.resident_gib=0" not in arguments:  # streamed images are decoded during training
        assert listing(tmp_path) == before


def test_places_that_may_not_be_written(digits_run: tuple[Path, str], tmp_path: Path) -> None:
    run, images = digits_run[0], write_classes(tmp_path / "photos")
    (tmp_path / "file").write_text("x")
    (tmp_path / "full").mkdir()
    for name in ("letter.txt", "a.json", "a.html", "a.csv", "a.parquet"):
        (tmp_path / "full" / name).write_text("x")
    before = listing(tmp_path) | listing(run)
    for command, word in (
        (("train", "--out", tmp_path / "file"), "file"),
        (("train", "--out", tmp_path / "full"), "not empty"),
        (("train", "--out", run), "optim.epochs"),
        (("train", "--out", tmp_path / "file" / "run"), "cannot write"),
        (("check", images, "--out", tmp_path / "full" / "a.json"), "a.json"),
        (("check", images, "--out", tmp_path / "a.txt"), ".json"),
        (("embed", run, images, "--out", images / "a.parquet"), "photos"),
        (("embed", run, images, "--out", tmp_path / "full" / "a.parquet"), "a.parquet"),
        (("search", run, images, images, "--out", tmp_path / "full" / "a.html"), "a.html"),
        (("predict", run, images, "--out", tmp_path / "full" / "a.csv"), "a.csv"),
        (("predict", run, images, "--out", tmp_path / "a.txt"), ".csv"),
        (("export", run, "--to", "timm", "--out", tmp_path / "full"), "full"),
        (("export", run, "--to", "tim"), "timm"),
        (("analyze", run, "--out", tmp_path / "file"), "file"),
        (("report", run, "--out", tmp_path / "full" / "a.html"), "a.html"),
    ):
        assert_sentence(contune(*command), word)
    assert listing(tmp_path) | listing(run) == before


def test_runs_that_are_unfinished_or_damaged(digits_run: tuple[Path, str], tmp_path: Path) -> None:
    folder = shutil.copytree(digits_run[0], tmp_path / "run")
    for setting in ("model.encoder=resnet50", "data.image_size=64", "method.k1=3", "optim.epochs=3", "eval.knn=3"):
        assert_sentence(contune("eval", folder, setting), setting.partition("=")[0])
    (folder / "result.json").write_text("{}")
    for command in (("report", folder), ("export", folder, "--to", "safetensors"), ("train", "--out", folder)):
        word = "result.json" if command[0] != "train" else "optim.epochs"
        assert_sentence(contune(*command), word)
    weights = folder / "encoder.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    assert_sentence(contune("eval", folder), "encoder.safetensors")
    weights.unlink()
    assert_sentence(contune("eval", folder), "no encoder")
    (folder / "config.json").write_text('{"optim": ')
    assert_sentence(contune("eval", folder), "config.json")
