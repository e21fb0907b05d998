"""Training from pretrained weights, validation while training, and what is said about a run that learned nothing."""

from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import PLAIN, contune, read_json, read_lines, train
from small_run import write_run
from torch import Tensor

from contune.device import timm
from contune.errors import UserError
from contune.export import export_run
from contune.models import EncoderSpec, load_encoder, save_encoder
from contune.models.saved import find_weights
from contune.recipes import find_recipe
from contune.run import RunFolder
from contune.training.log import load_checkpoint
from contune.training.optim import layer_rates
from contune.training.setup import build_method, open_setup

QUICK = ("digits", "optim.epochs=2", "optim.batch_images=64", "data.val_fraction=0.8")
"""Two steps an epoch."""
COLORS: dict[str, Any] = {"channels": 3, "mean": (0.3, 0.4, 0.5), "std": (0.2, 0.25, 0.3)}


def assert_same(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() >= expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=0, atol=0)


@pytest.fixture(scope="module")
def resnet18(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pretrained") / "run"
    spec = EncoderSpec(encoder="resnet18", stem="imagenet", norm="batch", image_size=72, **COLORS)
    folder.mkdir()
    save_encoder(folder / "encoder.safetensors", spec.build(), spec)
    return folder


@pytest.mark.parametrize("source", ["run", "file", "safetensors", "timm", "state dict", "wrapped state dict"])
def test_weights_from_every_source(source: str, resnet18: Path, tmp_path: Path) -> None:
    expected = load_encoder(resnet18).backbone.state_dict()
    path = {"run": resnet18, "file": resnet18 / "encoder.safetensors"}.get(source, tmp_path / "weights.pt")
    if source in ("safetensors", "timm"):
        path = export_run(resnet18, source, tmp_path / "export")[0]
    elif source == "state dict":
        torch.save({**expected, "fc.weight": torch.zeros(5, 512)}, path)
    elif source == "wrapped state dict":
        torch.save({"epoch": 3, "state_dict": {f"module.{name}": x for name, x in expected.items()}}, path)
    weights = find_weights(str(path), "resnet18")
    assert_same(weights.backbone.state_dict(), expected)
    assert (weights.spec.encoder, weights.spec.stem, weights.spec.channels) == ("resnet18", "imagenet", 3)
    if "state dict" not in source:  # which does not say how its images were normalized
        assert weights.spec.image_size == 72
        assert weights.spec.mean == pytest.approx(COLORS["mean"])


@pytest.mark.parametrize(
    ("source", "word"),
    [
        ("nowhere", "neither a file"),
        ("notes.pt", "no state dict"),
        ("other.pt", "model.encoder"),
        ("resnet18", "list_pretrained"),
        ("resnet18.no_such_tag", "resnet18.no_such_tag"),
    ],
)
def test_weights_that_cannot_be_loaded(source: str, word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("notes.pt").write_text("not a state dict")
    torch.save({"layer.weight": torch.zeros(2)}, "other.pt")
    monkeypatch.setattr(timm, "is_model_pretrained", lambda name: "." in name)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(UserError, match=word):
        find_weights(source, "resnet18")


def test_training_starts_from_the_weights(tmp_path: Path) -> None:
    """The input follows them: gray digits as color images, at their size, mean and standard deviation."""
    run = write_run(tmp_path / "run")
    setup = open_setup(find_recipe("digits")().override([f"model.weights={run}", "data.image_size=none"]))
    assert (setup.spec.channels, setup.spec.image_size, setup.spec.mean) == (3, 8, (0.5,) * 3)
    assert_same(build_method(setup).encoder.state_dict(), load_encoder(run).backbone.state_dict())
    settings = (f"model.weights={run}", "data.image_size=none", "optim.epochs=1", *PLAIN)
    started = contune("train", *QUICK, *settings, "--out", tmp_path / "new")
    assert started.code == 0, started.err
    assert f"weights of {run}" in " ".join(started.out.split())
    assert load_encoder(tmp_path / "new").spec.channels == 3


def test_lower_layers_learn_more_slowly_and_a_frozen_encoder_does_not(tmp_path: Path) -> None:
    encoder = timm.create_model("resnet18", num_classes=0)
    rates = layer_rates(encoder, 0.5)
    assert rates[encoder.conv1.weight] < rates[encoder.layer1[0].conv1.weight] < rates[encoder.layer4[1].conv2.weight]
    assert rates[encoder.layer4[1].conv2.weight] <= 1
    before = build_method(open_setup(find_recipe("digits")())).state_dict()
    train(tmp_path / "frozen", *QUICK, "optim.freeze_epochs=2", "optim.layer_decay=0.9")
    state = load_checkpoint(tmp_path / "frozen", torch.device("cpu"))
    assert state is not None
    for name, tensor in state["method"].items():
        if name.endswith((".weight", ".bias")):
            assert torch.equal(tensor, before[name]) == name.startswith("encoder."), name


# Validation while training


def test_the_best_weights_are_kept_and_training_stops_when_they_stop_improving(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accuracies = iter([0.3, 0.9, 0.5, 0.4, 0.8])
    encoders: list[Tensor] = []

    def made_up(encoder: torch.nn.Module, *_: Any, k: int, **__: Any) -> Tensor:
        assert k == 7
        encoders.append(next(iter(encoder.parameters())).detach().clone())
        return torch.tensor(next(accuracies))

    monkeypatch.setattr("contune.training.trainer.validation_accuracy", made_up)
    settings = ("eval.every=1", "eval.knn_k=7", "run.keep=best", "optim.patience=2", "optim.epochs=10")
    result = train(tmp_path / "run", *QUICK, *settings)
    lines = read_lines(tmp_path / "run")
    assert [line["val_top1"] for line in lines if "val_top1" in line] == pytest.approx([0.3, 0.9, 0.5, 0.4])
    assert lines[-1]["epoch"] == 4
    assert result["validation"] == {"top1": pytest.approx(90), "epoch": 2}
    assert torch.equal(next(load_encoder(tmp_path / "run").backbone.parameters()), encoders[1])

    checkpoint = tmp_path / "run" / "checkpoint.pt"
    step = torch.load(checkpoint)["step"]
    (tmp_path / "run" / "result.json").unlink()  # as if it had been killed during its evaluation
    assert train(tmp_path / "run", *QUICK, *settings)["validation"] == result["validation"]
    assert torch.load(checkpoint)["step"] == step


# Honest endings


def test_a_run_that_learns_nothing_says_so(digits_run: tuple[Path, str], tmp_path: Path) -> None:
    """Without a learning rate and without batch-norm, whose statistics would move, it ends exactly where it began."""
    settings = ("optim.lr=0", "model.norm=group", "run.loggers=none")
    done = contune("train", *QUICK, *settings, "--out", tmp_path / "run")
    assert done.code == 0, done.err
    result = RunFolder(tmp_path / "run").result()
    assert result is not None
    scores = {measure["name"]: measure["top1"] for measure in result["measures"]}
    assert scores["start-knn"] > 20
    (warning,) = result["warnings"]
    assert "learned nothing" in warning
    assert warning in " ".join(done.out.split())
    assert warning in (tmp_path / "run" / "report.html").read_text()
    assert read_json(digits_run[0] / "result.json")["warnings"] == []
