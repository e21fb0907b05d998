"""`contune bench methods`: passes are what hooks see, and a step's row compares it with them."""

from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import contune, read_json
from torch import nn

from contune.bench import methods, train_stages
from contune.bench.encoder_step import encoder_step
from contune.bench.laps import Timed
from contune.bench.method_passes import Pass, encoder_passes
from contune.bench.methods import RECIPES_BY_METHOD, run_methods_bench
from contune.errors import UserError
from contune.methods import find_method
from contune.models import EncoderSpec
from contune.recipes import RECIPES
from contune.train.engine import Engine

SPEC = EncoderSpec(
    encoder="resnet-mini", stem="auto", norm="batch", image_size=16, channels=3, mean=(0.5,) * 3, std=(0.25,) * 3
)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train_stages, "NUM_IMAGES", 64)
    for module in (train_stages, methods):
        monkeypatch.setattr(module, "IMAGE_SIZE", 16)


def passes_of(name: str, num_views: int, sizes: tuple[int, ...] = (16,) * 9, **settings: Any) -> list[Pass]:
    encoder, kind = SPEC.build(), find_method(name)
    method = kind(encoder, int(encoder.num_features), 4, kind.Settings(**settings))  # type: ignore[arg-type]  # timm models carry an int
    views = [torch.randn(4, 3, size, size) for size in sizes[:num_views]]
    passes = encoder_passes(method, views, torch.arange(4) % 2)
    assert not any(module._forward_hooks for module in method.modules())
    return passes


@pytest.mark.parametrize(
    ("name", "num_views", "expected"),
    [
        ("byol", 2, [Pass(8, 16, True), Pass(8, 16, False)]),
        ("moco-v2", 2, [Pass(8, 16, True), Pass(8, 16, False)]),
        ("dino", 2, [Pass(8, 16, False), Pass(8, 16, True)]),
        ("ressl", 2, [Pass(4, 16, True), Pass(4, 16, False)]),
        ("simclr", 2, [Pass(8, 16, True)]),
        ("simsiam", 2, [Pass(8, 16, True)]),
        ("supcon", 3, [Pass(12, 16, True)]),
        ("cross-entropy", 1, [Pass(4, 16, True)]),
    ],
)
def test_passes_are_counted(name: str, num_views: int, expected: list[Pass]) -> None:
    assert passes_of(name, num_views) == expected


def test_small_crops_are_passes_of_their_own() -> None:
    passes = passes_of("dino", 4, sizes=(16, 16, 8, 8), num_prototypes=8)
    assert passes == [Pass(8, 16, False), Pass(8, 16, True), Pass(8, 8, True)]


@pytest.mark.parametrize("trained", [True, False])
def test_an_encoder_alone_learns_only_where_it_is_trained(trained: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = SPEC.build().eval()
    monkeypatch.setattr(EncoderSpec, "build", lambda self: encoder)
    before = {name: tensor.clone() for name, tensor in encoder.state_dict().items()}
    step = encoder_step(
        SPEC, torch.randn(4, 3, 16, 16), autocast=torch.enable_grad, engine=Engine(False, False), trained=trained
    )
    outputs = step()
    assert isinstance(outputs, dict)
    assert all(tensor.requires_grad == trained for tensor in outputs.values())
    assert moved(encoder, before, "conv1.weight") == trained
    assert moved(encoder, before, "bn1.running_mean"), "it is in training mode"


def moved(module: nn.Module, before: dict[str, torch.Tensor], name: str) -> bool:
    return not module.state_dict()[name].equal(before[name])


def test_every_method_has_a_recipe() -> None:
    assert set(RECIPES_BY_METHOD.values()) <= set(RECIPES)


@pytest.mark.usefixtures("small")
def test_rows_tables_and_one_that_fails(tmp_path: Path) -> None:
    out = tmp_path / "methods.json"
    outcome = contune(
        "bench", "methods", "--methods", "byol,w-mse,cross-entropy", "--encoder", "resnet-mini", "--images", "4",
        "--device", "cpu", "--seconds", "0.01", "--out", out,
    )  # fmt: skip
    assert outcome.code == 0, outcome.err
    assert "w-mse: failed: 4 embeddings of size 64 cannot be whitened" in outcome.out
    assert "resnet-mini, 4 images a step, 16 px, eager" in outcome.out
    assert "8 trained + 8 forward" in outcome.out
    assert str(out.with_suffix(".png")) in outcome.out.replace("\n", "")
    assert out.with_suffix(".png").exists()
    result = read_json(out)
    assert list(result["failed"]) == ["w-mse"]
    byol, cross_entropy = result["rows"]
    assert (byol["method"], byol["views"], byol["trained"], byol["forward"]) == ("byol", 8, 8, 8)
    assert (cross_entropy["views"], cross_entropy["trained"], cross_entropy["forward"]) == (4, 4, 0)
    assert [(one["images"], one["size"], one["trained"]) for one in byol["passes"]] == [(8, 16, True), (8, 16, False)]
    for row in (byol, cross_entropy):
        assert row["engine"] == "eager"
        assert row["views_per_second"] == pytest.approx(row["views"] / (row["ms"] / 1000))
    assert cross_entropy["expected_ms"] == pytest.approx(cross_entropy["passes"][0]["ms"])


@pytest.mark.usefixtures("small")
def test_a_ratio_is_of_the_same_lap(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine that slows down tenfold for one lap, steps and passes do alike."""
    passes = ("32 trained at 16 px", "32 forward at 16 px")
    laps = [{methods.WHOLE: 6 * pace, passes[0]: 3 * pace, passes[1]: pace} for pace in (1.0, 10.0, 1.0, 1.0)]
    counts = {methods.WHOLE: 8}
    monkeypatch.setattr(methods, "run_laps", lambda *_: Timed(laps, {methods.WHOLE: 0.5}, counts))
    config = methods._config("byol", "resnet-mini", 16, "eager")
    row = methods._measure("byol", config, torch.device("cpu"), 1.0)
    assert (row["ms"], row["expected_ms"], row["ratio"]) == (6000, 4000, 1.5)
    assert (row["first_seconds"], row["steps"]) == (0.5, 8)


@pytest.mark.usefixtures("small")
def test_nothing_timed_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no method could be timed"):
        run_methods_bench(
            methods=["w-mse"], encoder="resnet-mini", images=16, device="cpu", out=tmp_path / "methods.json"
        )
    assert "whitened" in read_json(tmp_path / "methods.json")["failed"]["w-mse"]


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"methods": ["boyl"]}, "unknown method 'boyl'; did you mean byol"),
        ({"engine": "fast"}, "unknown engine 'fast'"),
        ({"engine": "auto"}, "unknown engine 'auto'"),
        ({"engine": "graph"}, "a single process on a CUDA device; use eager"),
        ({"images": 1}, "images must be at least 2"),
        ({"encoder": "resnet-none"}, "resnet-none"),
        ({"seconds": 0}, "seconds must be above 0"),
        ({"device": "meta"}, "cpu and cuda only"),
    ],
)
def test_a_wrong_request_is_a_sentence(wrong: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    right: dict[str, Any] = {"methods": ["byol"], "encoder": "resnet-mini", "images": 16, "device": "cpu"}
    with pytest.raises(UserError, match=sentence):
        run_methods_bench(**(right | wrong), out=tmp_path / "methods.json")
    assert not list(tmp_path.iterdir())
