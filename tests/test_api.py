"""`contune.train`: every form of the same data gives the run of the command line, to the bit, and runs grow."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from command_line import contune, read_json, read_lines, train
from PIL import Image
from safetensors.torch import load_file
from sklearn.datasets import load_digits
from torch import Tensor, nn

import contune as library
from contune.api import Run
from contune.config import Config
from contune.data.memory import open_memory
from contune.errors import UserError
from contune.training.optim import learning_rate
from contune.training.session import evaluate_run

NUM = 100
X = (load_digits().images[:NUM] * 255 / 16).round().astype(np.uint8)
Y = load_digits().target[:NUM]
SETTINGS: dict[str, Any] = {
    "data.image_size": 8,
    "augment.policy": "digits",
    "optim.epochs": 2,
    "optim.batch_images": 32,
    "run.loggers": (),
    "run.report": False,
    "eval.start": False,
    "eval.linear": "none",
    "run.log_every": 1,
}
SMALL = SETTINGS | {"model.encoder": "resnet-mini"}
FEATURES = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=list("0123456789"))})


class Items(torch.utils.data.Dataset[Any]):
    """Digits as one kind of image or another, with labels as tensors."""

    def __init__(self, kind: Callable[[np.ndarray], Any]) -> None:
        self.kind = kind

    def __len__(self) -> int:
        return NUM

    def __getitem__(self, index: int) -> tuple[Any, Tensor]:
        return self.kind(X[index]), torch.tensor(Y[index])


def table() -> Any:
    return datasets.Dataset.from_dict({"image": list(map(Image.fromarray, X)), "label": Y}, features=FEATURES)


@pytest.fixture(scope="module")
def parquet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "digits.parquet"
    table().to_parquet(path)
    return path


@pytest.fixture(scope="module")
def by_command(parquet: Path) -> Path:
    """The run that all others must equal."""
    folder = parquet.parent / "run"
    train(folder, "images", f"data.path={parquet}", *(f"{key}={value}" for key, value in SMALL.items()))
    return folder


def assert_same_run(folder: Path, expected: Path) -> None:
    weights, theirs = (load_file(path / "encoder.safetensors") for path in (folder, expected))
    assert weights.keys() == theirs.keys()
    assert all(torch.equal(weights[name], theirs[name]) for name in theirs)
    assert read_lines(folder) == read_lines(expected)
    assert read_json(folder / "result.json")["measures"] == read_json(expected / "result.json")["measures"]


@pytest.mark.parametrize(
    "form",
    [
        pytest.param(lambda path: str(path), id="a path"),
        pytest.param(lambda path: (X, Y), id="arrays"),
        pytest.param(lambda path: (torch.from_numpy(X)[:, None] / 255, [str(y) for y in Y]), id="floats, strings"),
        pytest.param(lambda path: Items(Image.fromarray), id="a Dataset of PIL images"),
        pytest.param(lambda path: table(), id="a Hugging Face dataset"),
    ],
)
def test_every_form_of_data_gives_the_run_of_the_command_line(
    form: Callable[[Path], Any], parquet: Path, by_command: Path, tmp_path: Path
) -> None:
    run = library.train(form(parquet), "images", out=tmp_path / "run", **SMALL)
    assert_same_run(run.folder, by_command)


def test_a_dataset_dict_keeps_its_splits(tmp_path: Path) -> None:
    splits = datasets.DatasetDict(train=table().select(range(80)), test=table().select(range(80, NUM)))
    run = library.train(splits, out=tmp_path / "a", **SMALL)
    assert {one["num_images"] for one in run.result["measures"]} == {20}
    parts = {"train": (X[:80], Y[:80]), "test": (X[80:], Y[80:])}
    assert_same_run(library.train(parts, out=tmp_path / "b", **SMALL).folder, tmp_path / "a")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    settings = SMALL | {"eval.linear": "fast", "method.cross_entropy": 0}
    return library.train((X, Y), out=tmp_path_factory.mktemp("memory") / "run", **settings)


def test_a_run_on_arrays_is_of_use(run: Run, tmp_path: Path) -> None:
    (part,) = run.embed(X[:5])
    with torch.no_grad():
        expected = run.encoder(torch.from_numpy(X[:5, None]))
    np.testing.assert_allclose(part.embeddings, expected, rtol=1e-5, atol=1e-6)
    (predicted,) = run.predict((X, Y))
    assert predicted.labels == [str(y) for y in Y]
    assert np.mean([a == b for a, b in zip(predicted.labels, predicted.classes, strict=True)]) > 0.5
    (found,) = run.search(X, X[:1], k=2)
    assert found.hits[0].path == "images#0"
    assert found.hits[0].similarity == pytest.approx(1)
    assert contune("export", run.folder, "--to", "safetensors", "--out", tmp_path / "export").code == 0
    assert f"{run.result['knn_top1']:.2f} %" in repr(run)
    with pytest.raises(UserError, match="no report"):
        _ = run.report


@pytest.mark.parametrize("command", [("eval",), ("analyze",), ("report",), ("train", "optim.epochs=3", "--continue")])
def test_commands_that_need_the_images_say_that_they_are_gone(command: tuple[str, ...], run: Run) -> None:
    outcome = contune(*command, run.folder)
    assert outcome.code == 2
    assert "memory" in outcome.err
    assert (run.folder / "result.json").exists()


def test_other_data_is_another_run_and_the_same_is_reused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    quick = SMALL | {"optim.epochs": 0}
    two_channels = [(list(np.stack([x, 255 - x], axis=-1)), Y) for x in (X, X // 2)]
    folders = {
        library.train(data, **quick).folder
        for data in ((X, Y), (X, Y), (255 - X, Y), (X, Y % 2), Items(Image.fromarray), *two_channels)
    }
    assert len(folders) == 6
    assert all(folder.parent == Path("runs") for folder in folders)
    assert capsys.readouterr().out.count("already finished") == 1


class Net(nn.Module):
    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(1, width, 3)

    def forward(self, x_NCHW: Tensor) -> Tensor:
        return F.adaptive_avg_pool2d(F.relu(self.convolution(x_NCHW)), 2).flatten(1)


def test_a_module_of_your_own(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = Net()
    before = net.convolution.weight.clone()
    probe = {"eval.linear": "authors", "eval.linear_epochs": 1}
    run = library.train((X, Y), encoder=net, out=tmp_path / "run", **SETTINGS | probe)
    assert torch.equal(net.convolution.weight, before), "contune trains a copy"
    assert run.encoder.num_features == 64
    (part,) = run.predict(X[:3])
    assert part.probabilities.shape == (3, 10)
    with pytest.raises(UserError, match="module of your own, Net"):
        library.load_encoder(run.folder)
    with pytest.raises(UserError, match="do not fit"):
        library.load_encoder(run.folder, encoder=Net(8))
    loaded = library.load_encoder(run.folder, encoder=Net())
    assert not torch.equal(loaded.backbone.state_dict()["convolution.weight"], before)
    assert torch.equal(*(one(torch.from_numpy(X[:4, None])) for one in (loaded, run.encoder)))
    with pytest.raises(UserError, match="runs/nowhere"):
        library.load_encoder("runs/nowhere", encoder=Net())
    with pytest.raises(UserError, match=r"another model\.encoder"):
        library.train((X, Y), encoder=Net(), out=tmp_path / "run", **SETTINGS | probe)


def darker_or_not(image_CHW: Tensor) -> Tensor:
    assert image_CHW.dtype == torch.uint8
    return image_CHW[:, 1:, 1:] / 255 * torch.rand(1)


def test_a_transform_of_your_own_is_reproducible(tmp_path: Path) -> None:
    settings = SMALL | {"optim.epochs": 1}
    runs = [library.train((X, Y), transform=darker_or_not, out=tmp_path / name, **settings) for name in "ab"]
    assert_same_run(runs[0].folder, runs[1].folder)
    assert evaluate_run(runs[0].folder, ["data.name=digits", "data.path=none", "eval.linear=fast"])["measures"]
    with pytest.raises(UserError, match=r"another augment\.policy"):
        library.train((X, Y), transform=lambda image: image, out=tmp_path / "a", **settings)
    with pytest.raises(UserError, match="between 0 and 1"):
        library.train((X, Y), transform=lambda image: image / 128 - 1, out=tmp_path / "d", **settings)
    with pytest.raises(UserError, match="must return a tensor"):
        library.train((X, Y), transform=lambda image: image[0], out=tmp_path / "e", **settings)


def test_settings_by_the_last_part_of_their_key() -> None:
    settings = {"method": "byol", "epochs": np.int64(5), "lr": 1, "seed": 3, "optim": "adamw", "data.path": Path("x")}
    config = Config()
    config.override(settings)
    assert (config.method.name, config.optim.name, config.optim.epochs, config.optim.lr) == ("byol", "adamw", 5, 1)
    assert (config.run.seed, config.data.path) == (3, "x")
    for name, words in {"epoch": "epochs", "momentum": "ambiguous.*method.momentum", "optim.lrr": r"optim\.lr"}.items():
        with pytest.raises(UserError, match=words):
            config.override({"method": "byol", name: 1})


def test_several_labels_per_image() -> None:
    names = [["ab"[y % 2], "even"] if y % 2 else ["a"] for y in Y]
    splits = open_memory((X, names))
    assert splits.class_names == ("a", "b", "even")
    matrix_NK = splits.train.labels
    assert matrix_NK is not None
    again = open_memory((X, matrix_NK.int())).train.labels
    assert again is not None
    assert torch.equal(again, matrix_NK)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ((X, Y[:-1]), "inconsistent"),
        ((X, Y[:, None]), "inconsistent"),
        ((X, Y / 2), "a string in every row"),
        ({"train": (X, Y), "test": (X, Y.astype(str))}, "a string in every row"),
        (X, "images-ssl"),
        ({"test": (X, Y)}, "train"),
        ((X * 2.0, Y), "between 0 and 1"),
        (datasets.Dataset.from_dict({"text": ["a"]}), "no column of encoded images"),
        ("nowhere/", "nowhere"),
    ],
)
def test_bad_data(data: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=words):
        library.train(data, out=tmp_path / "run", **SMALL)
    assert not (tmp_path / "run").exists()


def test_a_run_is_trained_further_on_the_schedule_of_all_its_epochs(by_command: Path, tmp_path: Path) -> None:
    before = read_lines(by_command)
    outcome = contune("train", "--continue", by_command, "optim.epochs=4", "--out", tmp_path / "four")
    assert outcome.code == 0, outcome.err
    lines, result = read_lines(tmp_path / "four"), read_json(tmp_path / "four" / "result.json")
    assert lines[: len(before)] == before
    assert (len(lines), lines[-1]["step"], lines[-1]["epoch"]) == (2 * len(before), 2 * len(before), 4)
    assert (result["epochs"], result["resumed_at"]) == (4, len(before))
    optim, steps = Config.load(tmp_path / "four" / "config.json").optim, len(before) // 2
    expected = [
        learning_rate(
            step,
            schedule=optim.schedule,
            lr=optim.lr,
            steps_per_epoch=steps,
            epochs=4,
            warmup_epochs=optim.warmup_epochs,
            final_lr=optim.final_lr,
        )
        for step in range(2 * steps, 4 * steps)
    ]
    assert [line["lr"] for line in lines[2 * steps :]] == pytest.approx(expected)
    again = contune("train", "--continue", by_command, "optim.epochs=4", "--out", tmp_path / "four")
    assert "already finished" in again.out
    assert read_json(by_command / "result.json")["epochs"] == 2


@pytest.mark.slow
def test_with_a_constant_rate_an_extended_run_equals_a_long_one(tmp_path: Path) -> None:
    settings = SMALL | {"optim.schedule": "constant", "optim.warmup_epochs": 0, "eval.every": 0}
    run = library.train((X, Y), out=tmp_path / "grown", **settings)
    assert run.extend(epochs=4).result["epochs"] == 4
    library.train((X, Y), out=tmp_path / "long", **settings | {"optim.epochs": 4})
    assert_same_run(run.folder, tmp_path / "long")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (("optim.lr=1", "optim.epochs=4"), "optim.lr"),
        (("optim.epochs=1",), "2 epochs"),
        (("optim.epochs=4", "--seeds", "2"), "--seeds"),
        (("digits", "optim.epochs=4"), "KEY=VALUE"),
    ],
)
def test_only_epochs_may_change(by_command: Path, settings: tuple[str, ...], words: str) -> None:
    outcome = contune("train", "--continue", by_command, *settings)
    assert outcome.code == 2
    assert words in outcome.err
    assert read_json(by_command / "result.json")["epochs"] == 2
