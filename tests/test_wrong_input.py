"""What a person gets wrong: one sentence that says so, exit code 2, no traceback, nothing left on the disk."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from command_line import PLAIN, Outcome, contune, train
from pictures import write_classes, write_flat, write_picture
from safetensors.torch import save_file

from contune.cli import main
from contune.errors import UserError


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty working folder, and no data sets where they are usually looked for."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("CONTUNE_DATA", raising=False)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished") / "run"
    train(folder, "digits", "optim.epochs=0", "eval.linear=none")
    return folder


def assert_sentence(outcome: Outcome, *words: str) -> None:
    assert outcome.code == 2, outcome
    assert outcome.err.startswith("contune: ")
    assert outcome.err.count("\n") == 1
    assert outcome.err.endswith("\n")
    assert "Traceback" not in outcome.err
    for word in words:
        assert word in outcome.err


def listing(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))


SETTINGS = [
    (("digitz",), "unknown recipe 'digitz'; did you mean digits"),
    (("optim.epoch=3",), "unknown setting 'optim.epoch'; did you mean optim.epochs"),
    (("method.k3=3",), "unknown setting 'method.k3'; did you mean method.k"),
    (("method.name=tlc",), "unknown method 'tlc'; did you mean tcl"),
    (("model.encoder=resnet19",), "unknown encoder 'resnet19'; did you mean resnet1"),
    (("augment.policy=autoagument",), "unknown augmentation 'autoagument'; did you mean autoaugment"),
    (("augment.policy=digits rotate=3",), "unknown option of augmentation 'digits', 'rotate'; did you mean rotation"),
    (("augment.policy=digits rotation=much",), "digits rotation must be a number, got 'much'"),
    (("augment.policy=digits scale=2,1",), "scale=(2.0, 1.0) is not a range"),
    (("optim.name=lasr",), "unknown optim.name 'lasr'; did you mean lars"),
    (("optim.schedule=cosin",), "unknown optim.schedule 'cosin'; did you mean cosine"),
    (("data.sampler=balance",), "unknown data.sampler 'balance'; did you mean balanced"),
    (("model.stem=cifer",), "unknown model.stem 'cifer'; did you mean cifar"),
    (("model.norm=layer",), "unknown model.norm 'layer'; choose from batch, group"),
    (("method.variant=out",), "unknown setting 'method.variant'"),
    (("method.name=supcon", "method.variant=inside"), "unknown method.variant 'inside'; did you mean in"),
    (("run.device=gpu",), "run.device=gpu is not to be had here"),
    (("run.precision=fp8",), "unknown run.precision 'fp8'; did you mean fp32"),
    (("data.name=cifar11",), "unknown dataset 'cifar11'; did you mean cifar10 or cifar100"),
    (("digits", "epochs"), "'epochs' is not KEY=VALUE; write for example optim.epochs=100"),
    (("optim.epochs=ten",), "optim.epochs must be a whole number, got 'ten'"),
    (("optim.lr=0,1",), "optim.lr must be a number, got '0,1'"),
    (("run.report=perhaps",), "run.report must be true or false, got 'perhaps'"),
    (("method.temperature=0",), "method.temperature must be above 0, got 0.0"),
    (("method.temperature=nan",), "method.temperature must be above 0, got nan"),
    (("method.k1=-1",), "method.k1 must be 0 or more, got -1.0"),
    (("method.k1=inf",), "method.k1 must be finite, got inf"),
    (("method.k2=-0.5",), "method.k2 must be 0 or more, got -0.5"),
    (("method.projector_dim=0",), "method.projector_dim must be 1 or more, got 0"),
    (("method.projector_hidden=0",), "method.projector_hidden must be 1 or more, got 0"),
    (("method.name=simclr", "method.temperature=-1"), "method.temperature must be above 0, got -1.0"),
    (("method.name=triplet", "method.margin=-1"), "method.margin must be 0 or more, got -1.0"),
    (("method.name=cross-entropy", "method.label_smoothing=2"), "method.label_smoothing must be 1 or less, got 2.0"),
    (("optim.epochs=-1",), "optim.epochs must be 0 or more, got -1"),
    (("optim.batch_images=0",), "optim.batch_images must be 1 or more, got 0"),
    (("optim.batch_images=9999",), "optim.batch_images=9999 is more than the 898 training images; lower it"),
    (("optim.lr=0",), "optim.lr must be above 0, got 0.0"),
    (("augment.views=0",), "augment.views must be 1 or more, got 0"),
    (("augment.per_view=none,none,none",), "names 3 policies for augment.views=2; give one for each view"),
    (("data.val_fraction=2",), "data.val_fraction must be 0.9 or less, got 2.0"),
    (("data.image_size=1",), "data.image_size must be 4 or more, got 1"),
    (("data.channels=4",), "data.channels must be 1 or 3, got 4"),
    (("data.path=photos",), "digits come with scikit-learn and have no path"),
    (("data.name=images",), "data.name=images needs to know where they are; add data.path=FOLDER"),
    (("data.classes=list.txt",), "a class list is for imagenet100"),
    (("cifar10-tcl",), "cifar10 is not on this disk"),
    (("cifar10-tcl",), "https://www.cs.toronto.edu/~kriz/cifar.html"),
    (("eval.split=val",), "eval.split=val needs a validation split; set data.val_fraction=0.2"),
    (("data.sampler=balanced", "optim.batch_images=60"), "optim.batch_images a multiple of data.images_per_class"),
    (("data.sampler=balanced", "optim.batch_images=60"), "take data.images_per_class=6, or optim.batch_images=56"),
    (("data.sampler=balanced", "optim.batch_images=5"), "take data.images_per_class=5, or optim.batch_images=8"),
    (("data.sampler=balanced", "optim.batch_images=61"), "got 61 and 8; take optim.batch_images=56"),
    (("model.encoder=test_vit", "model.stem=cifar", "data.image_size=32"), "stem=cifar is for ResNets"),
    (("model.encoder=test_vit", "model.norm=group", "data.image_size=32"), "norm=group is for ResNets"),
]


@pytest.mark.parametrize(("arguments", "words"), SETTINGS)
def test_settings(arguments: tuple[str, ...], words: str, tmp_path: Path) -> None:
    assert_sentence(contune("train", *arguments), words)
    assert listing(tmp_path) == set()


def test_the_doctor_refuses_the_same_settings() -> None:
    assert_sentence(contune("doctor", "optim.lr=0"), "optim.lr must be above 0")
    assert_sentence(contune("doctor", "digitz"), "unknown recipe")


def truncated(folder: Path) -> None:
    whole = write_classes(folder) / "class0" / "0.png"
    picture = whole.with_suffix(".jpg")
    write_picture(picture, seed=0, size=64)
    picture.write_bytes(picture.read_bytes()[:-400])


def text_for_an_image(folder: Path) -> None:
    (write_classes(folder) / "class0" / "notes.jpg").write_text("These are notes.")


def one_class(folder: Path) -> None:
    for number in range(80):
        write_picture(folder / "only" / f"{number}.png", seed=number)


def no_images_in_parquet(folder: Path) -> None:
    folder.mkdir()
    pq.write_table(pa.table({"text": ["a", "b"], "label": [0, 1]}), folder / "train.parquet")


def no_parquet(folder: Path) -> None:
    folder.mkdir()
    (folder / "train.parquet").write_text("comma,separated")


FOLDERS: list[tuple[Callable[[Path], object], tuple[str, ...], str]] = [
    (Path.mkdir, (), "holds no image; put files there, or folders of them named after classes"),
    (lambda folder: None, (), "there is no file or folder at"),
    (text_for_an_image, (), "notes.jpg' is not an image in a known format; remove it or save it again"),
    (truncated, (), "0.jpg' is damaged"),
    (truncated, ("model.encoder=resnet19",), "unknown encoder 'resnet19'"),
    (truncated, ("data.resident_gib=0", "data.workers=0"), "0.jpg' is damaged"),
    (
        write_flat,
        (),
        "method tcl learns from labels and photos has none; train without labels by the recipe images-ssl",
    ),
    (write_flat, ("method.name=cross-entropy",), "method cross-entropy learns from labels"),
    (write_flat, ("method.name=simclr", "eval.online=true"), "eval.online=true needs labels, and this data has none"),
    (
        write_flat,
        ("method.name=simclr", "data.sampler=balanced"),
        "data.sampler=balanced needs labels, and this data has none",
    ),
    (one_class, (), "method tcl needs two classes or more"),
    (no_images_in_parquet, (), "has no column of encoded images, only text, label"),
    (no_parquet, (), "is not a whole parquet file; fetch it again"),
    (lambda folder: folder.write_text("x"), (), "is neither a folder of images nor a .parquet file"),
    (write_classes, ("optim.batch_images=64",), "optim.batch_images=64 is more than the 19 training images"),
]


@pytest.mark.parametrize(("make", "arguments", "words"), FOLDERS)
def test_images(make: Callable[[Path], object], arguments: tuple[str, ...], words: str, tmp_path: Path) -> None:
    make(tmp_path / "photos")
    before = listing(tmp_path)
    quick = ("model.encoder=resnet-mini", "data.image_size=8", "optim.batch_images=8", "optim.epochs=1")
    outcome = contune("train", "images", "data.path=photos", *quick, *PLAIN, *arguments)
    assert_sentence(outcome, words)
    if "data.resident_gib=0" not in arguments:  # what streams is only seen on the way
        assert listing(tmp_path) == before


def test_folders_that_runs_may_not_go_to(finished: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("x")
    before = listing(tmp_path) | listing(finished)
    for out, words in (
        (tmp_path / "file", "is a file; give a folder with --out"),
        (tmp_path / "full", "is not empty and holds no run; give another folder with --out"),
        (finished, "holds a run with another eval.linear, optim.epochs; give another folder with --out"),
        (tmp_path / "file" / "run", "cannot write to"),
    ):
        assert_sentence(contune("train", "digits", *PLAIN, "--out", out), words)
    assert listing(tmp_path) | listing(finished) == before


def test_eval_of_what_is_no_finished_run(finished: Path, tmp_path: Path) -> None:
    assert_sentence(contune("eval", tmp_path / "nowhere"), "is not a run folder: it has no config.json")
    unfinished = shutil.copytree(finished, tmp_path / "unfinished")
    (unfinished / "encoder.safetensors").unlink()
    assert_sentence(contune("eval", unfinished), "no encoder at", "once its training has ended")


def test_eval_with_wrong_settings(finished: Path) -> None:
    assert_sentence(contune("eval", finished, "eval.knn=3"), "unknown setting 'eval.knn'; did you mean eval.knn_k")
    assert_sentence(contune("eval", finished, "eval.split=val"), "eval.split=val needs a validation split")
    for setting in ("model.encoder=resnet50", "data.image_size=64", "method.k1=3", "optim.epochs=3"):
        key = setting.partition("=")[0]
        assert_sentence(contune("eval", finished, setting), f"{key} was settled when the encoder was trained")


def test_eval_of_data_without_a_test_split(finished: Path, tmp_path: Path) -> None:
    write_classes(tmp_path / "photos")
    arguments = ("data.name=images", "data.path=photos", "data.test_fraction=0")
    assert_sentence(contune("eval", finished, *arguments), "has no test split to measure on")


def test_damaged_files_of_a_run(finished: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(finished, tmp_path / "run")
    weights = folder / "encoder.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    assert_sentence(contune("eval", folder), "encoder.safetensors cannot be read as safetensors")
    save_file({"weight": torch.zeros(3)}, weights)
    assert_sentence(contune("eval", folder), "it was not written by a contune run")
    (folder / "config.json").write_text('{"optim": ')
    assert_sentence(contune("eval", folder), "config.json is not a config that contune wrote")
    assert_sentence(contune("train", "digits", "--out", folder), "config.json is not a config that contune wrote")


@pytest.mark.parametrize("arguments", [("train", "--otu", "x"), ("evaluate",), ("eval",), ("recipes", "--digits")])
def test_wrong_usage_is_code_2_too(arguments: tuple[str, ...], tmp_path: Path) -> None:
    outcome = contune(*arguments)
    assert outcome.code == 2
    assert "Usage:" in outcome.err
    assert listing(tmp_path) == set()


def test_debug_shows_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["contune", "train", "optim.lr=0", "--debug"])
    with pytest.raises(UserError, match=r"optim\.lr must be above 0"):
        main()
