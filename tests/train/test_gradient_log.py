"""The gradient responses that training logs: whose they are, and that training does not notice."""

from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import read_lines, train
from torch import Tensor

from contune.losses.responses import coefficients
from contune.methods import find_method
from contune.methods.pairwise import PairwiseMethod
from contune.models import EncoderSpec
from contune.train.gradients import LOGGED, recorder_for

RUN = ("digits", "optim.epochs=1", "eval.linear=none", "data.val_fraction=0.7")
"""Four steps."""
OWN = {"positive_gradient", "negative_gradient"}


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Tensor, Tensor]]:
    """The embeddings and labels of every step."""
    seen: list[tuple[Tensor, Tensor]] = []
    forward = PairwiseMethod.forward

    def watched(self: PairwiseMethod, views: list[Tensor], labels_B: Tensor | None) -> object:
        output = forward(self, views, labels_B)
        seen.append((output.state["z_ND"].clone(), output.state["groups_N"]))
        return output

    monkeypatch.setattr(PairwiseMethod, "forward", watched)
    return seen


def mean_responses(z_ND: Tensor, groups_N: Tensor, k1: float, k2: float, tau: float) -> tuple[float, float]:
    """In float64, by the whole matrices."""
    terms = coefficients(z_ND.double(), groups_N, temperature=tau, k1=k1, k2=k2)
    rows = [i for i in range(len(z_ND)) if terms.X_RC[i].any()]
    same_NN = groups_N[:, None] == groups_N
    pull = [terms.positive_RC[i].abs().sum() / (same_NN[i].sum() - 1) for i in rows]
    push = [terms.N_RC[i].sum() / (~same_NN[i]).sum() for i in rows]
    return float(torch.stack(pull).mean()), float(torch.stack(push).mean())


def test_the_values_are_those_of_the_last_step_before_each_line(
    compared: list[tuple[Tensor, Tensor]], tmp_path: Path
) -> None:
    train(tmp_path / "run", *RUN, "run.log_every=3", "method.k1=2000", "method.k2=1.5")
    lines = read_lines(tmp_path / "run")
    assert [line["step"] for line in lines] == [3, 4]
    for line in lines:
        z_ND, groups_N = compared[int(line["step"]) - 1]
        tuned = mean_responses(z_ND, groups_N, 2000.0, 1.5, 0.1)
        plain = mean_responses(z_ND, groups_N, 0.0, 1.0, 0.1)
        assert (line["positive_gradient"], line["negative_gradient"]) == pytest.approx(tuned, rel=1e-5)
        assert (line["supcon_positive_gradient"], line["supcon_negative_gradient"]) == pytest.approx(plain, rel=1e-5)
        assert 0.9 < line["theorem1_share"] <= 1


@pytest.mark.parametrize(
    ("name", "settings", "logged"),
    [
        ("tcl", {}, set(LOGGED)),
        ("tcl", {"k1": 0.0}, set(LOGGED)),
        ("tcl", {"supervised": False}, set(LOGGED)),
        ("supcon", {}, OWN),
        ("supcon", {"variant": "in"}, OWN),
        ("simclr", {}, OWN),
        ("triplet", {}, set()),
        ("cross-entropy", {}, set()),
        ("byol", {}, set()),
    ],
)
def test_who_logs_what(name: str, settings: dict[str, Any], logged: set[str]) -> None:
    spec = EncoderSpec(
        encoder="resnet-mini", stem="auto", norm="batch", image_size=8, channels=1, mean=(0.5,), std=(0.25,)
    )
    torch.manual_seed(0)
    encoder, method_class = spec.build(), find_method(name)
    method = method_class(encoder, int(encoder.num_features), 4, method_class.Settings(**settings))  # type: ignore[arg-type]  # timm models carry an int
    recorder = recorder_for(method)
    if recorder is None:
        assert not logged
        return
    recorder.keep(method([torch.randn(8, 1, 8, 8) for _ in range(2)], torch.arange(8) % 4))
    found = recorder.read()
    assert found.keys() == logged
    assert all(found[key] > 0 for key in OWN)


def test_training_does_not_notice(tmp_path: Path) -> None:
    for switch in ("true", "false"):
        train(tmp_path / switch, *RUN, "run.log_every=1", f"run.gradients={switch}")
    on, off = (read_lines(tmp_path / switch) for switch in ("true", "false"))
    assert [{name: line[name] for name in off[0]} for line in on] == off
    assert on[0].keys() - off[0].keys() == set(LOGGED)


def test_a_large_batch_is_measured_on_some_of_its_anchors(
    compared: list[tuple[Tensor, Tensor]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("contune.losses.responses.BLOCK_PAIRS", 32 * 128)
    train(tmp_path / "run", *RUN, "run.log_every=20")
    (line,) = read_lines(tmp_path / "run")
    z_ND, groups_N = compared[-1]
    terms = coefficients(z_ND, groups_N, k1=500.0)
    rows_NN, same_NN = terms.positive_RC.abs()[::4], (groups_N[:, None] == groups_N)[::4]
    expected = (rows_NN.sum(dim=1) / (same_NN.sum(dim=1) - 1)).mean().item()
    assert line["positive_gradient"] == pytest.approx(expected, rel=1e-5)


@pytest.mark.gpu
@pytest.mark.parametrize("engine", ["graph", "compile"])
def test_a_recorded_step_logs_what_the_eager_one_does(engine: str, tmp_path: Path) -> None:
    """Ten steps: three to warm up, one recorded, the others replayed."""
    settings = ("digits", "optim.lr=0.0003", "run.log_every=1", "run.precision=fp32", "run.device=cuda")
    for name in ("eager", engine):
        train(tmp_path / name, *settings, "optim.epochs=1", f"run.engine={name}")
    eager, recorded = (read_lines(tmp_path / name) for name in ("eager", engine))
    for name in LOGGED:
        assert [line[name] for line in recorded] == pytest.approx([line[name] for line in eager], rel=2e-2), name
