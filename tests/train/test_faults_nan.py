"""Loss or gradient that is no finite number: the run stops and says what was in the batch, or leaves the step out."""

from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import PLAIN, Outcome, contune, last_line, read_json, read_lines, train
from torch import Tensor

from contune.data import load_dataset
from contune.methods import find_method
from contune.methods.base import Method
from contune.methods.tcl import TCL
from contune.models import EncoderSpec
from contune.train.finite import CHECKED, TAKEN, Before, checked, largest_gradient
from contune.train.graph import Step
from contune.train.guard import MOST_IN_A_ROW
from contune.train.online import OnlineProbe
from contune.train.optim import build_optimizer
from contune.train.trainer import Trainer

RUN = ("digits", "optim.epochs=1", "eval.linear=none", "run.checkpoint_seconds=0")
NAN, INF = float("nan"), float("inf")


class _Spoiled(torch.autograd.Function):
    """A loss that is fine and whose gradient is not."""

    @staticmethod
    def forward(ctx: Any, loss: Tensor) -> Tensor:
        return loss.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return grads[0] * INF


def train_with(spoiled: dict[int, str], folder: Path, *arguments: str) -> Outcome:
    """A run in which the loss or the gradient of some steps, counted from 1, is spoiled."""
    pair_loss, calls = TCL.pair_loss, 0

    def spoil(self: TCL, z_ND: Tensor, groups_N: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        loss = pair_loss(self, z_ND, groups_N)
        what = spoiled.get(calls)
        if what == "gradient":
            return _Spoiled.apply(loss)  # type: ignore[no-untyped-call,no-any-return]  # torch leaves it untyped
        return loss if what is None else loss * float(what)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TCL, "pair_loss", spoil)
        return contune("train", *RUN, *arguments, *PLAIN, "--out", folder)


@pytest.mark.parametrize(
    ("what", "words"), [("nan", "the loss became nan"), ("inf", "the loss became inf"), ("gradient", "the gradient")]
)
def test_by_default_it_stops_and_writes_down_the_batch(what: str, words: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    outcome = train_with({7: what}, folder, "run.log_every=4")
    assert outcome.code == 2
    assert last_line(outcome.err).startswith(f"contune: {words}")
    assert " at step 7; the last checkpoint is untouched; nonfinite.json there says what was" in outcome.err
    assert last_line(outcome.err).endswith("or leave such steps out with run.on_nan=skip")
    state = torch.load(folder / "checkpoint.pt")
    assert state["step"] == 4, "not the one at step 8, which comes after the damage"
    assert all(tensor.isfinite().all() for tensor in state["method"].values())

    (found,) = read_json(folder / "nonfinite.json")["steps"]
    assert found["step"] == 7
    assert what in (found["loss"], "gradient")
    images = load_dataset("digits").train
    assert images.labels is not None
    counts = images.labels[found["images"]].bincount(minlength=10)
    assert {int(name): number for name, number in found["labels"].items()} == {
        k: int(number) for k, number in enumerate(counts) if number
    }
    assert found["names"] == [images.names[i] for i in found["images"]]
    assert (found["pixels"]["lowest"], found["pixels"]["highest"]) == ("0", "255")
    assert [view["not_finite"] for view in found["views"]] == [0, 0]


def test_the_described_views_are_those_the_encoder_saw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, str]] = []
    forward = TCL.forward

    def watched(self: TCL, views: list[Tensor], labels_B: Tensor | None) -> object:
        seen.append((f"{views[1].min():g}", f"{views[1].max():g}"))
        return forward(self, views, labels_B)

    monkeypatch.setattr(TCL, "forward", watched)
    train_with({7: "nan"}, tmp_path / "run")
    view = read_json(tmp_path / "run" / "nonfinite.json")["steps"][0]["views"][1]
    assert (view["lowest"], view["highest"]) == seen[6]


def test_the_same_run_goes_on_with_the_other_policy(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert train_with({7: "nan"}, folder, "run.log_every=4").code == 2
    again = train_with({3: "nan"}, folder, "run.log_every=4", "run.on_nan=skip")  # the third from step 4 is the seventh
    assert again.code == 0, again.err
    assert "the loss became nan at step 7: left out, as run.on_nan=skip asks; 1 so far" in again.out
    assert read_json(folder / "result.json")["last_logged"]["skipped_steps"] == 1


def test_skipped_steps_are_counted_and_leave_no_trace_in_the_log(tmp_path: Path) -> None:
    folder, spoiled = tmp_path / "run", {2: "nan", 6: "gradient", 7: "inf"}
    outcome = train_with(spoiled, folder, "run.on_nan=skip", "run.log_every=1", "eval.online=true")
    assert outcome.code == 0, outcome.err
    lines = read_lines(folder)
    assert [line["step"] for line in lines] == [step for step in range(1, 15) if step not in spoiled]
    assert [line["skipped_steps"] for line in lines] == [0] + [1] * 3 + [3] * 7
    assert all(value == value and abs(value) != INF for line in lines for value in line.values())
    described = read_json(folder / "nonfinite.json")["steps"]
    assert [step["step"] for step in described] == [2, 6, 7]
    few = train_with(spoiled, tmp_path / "few", "run.on_nan=skip", "run.log_every=5", "eval.online=true")
    assert few.code == 0
    expected = [[1, 3, 4, 5], [8, 9, 10], [11, 12, 13, 14]]
    by_step = {line["step"]: line["loss"] for line in lines}
    assert [line["loss"] for line in read_lines(tmp_path / "few")] == pytest.approx(
        [sum(by_step[step] for step in steps) / len(steps) for steps in expected], rel=1e-6
    )


def test_a_run_without_such_a_step_is_the_same_under_both_policies(tmp_path: Path) -> None:
    for policy in ("stop", "skip"):
        train(tmp_path / policy, *RUN, f"run.on_nan={policy}", "run.log_every=1", "data.val_fraction=0.6")
    stop, skip = (read_lines(tmp_path / policy) for policy in ("stop", "skip"))
    assert [line | {"skipped_steps": 0} for line in stop] == skip


def test_skipping_all_of_them_is_given_up(tmp_path: Path) -> None:
    spoiled = dict.fromkeys(range(9, 1000), "nan")
    settings = ("run.on_nan=skip", "optim.epochs=8", "data.val_fraction=0.6", "run.log_every=20")
    outcome = train_with(spoiled, tmp_path / "run", *settings)
    assert outcome.code == 2
    assert last_line(outcome.err).startswith(f"contune: {40 - 8} steps in a row had a loss or gradient")
    assert MOST_IN_A_ROW <= 32
    assert torch.load(tmp_path / "run" / "checkpoint.pt")["step"] == 20


def parts_of(name: str, optimizer: str) -> tuple[Step, Method, list[Any]]:
    """A method with its optimizer and probe, and a step of theirs as the trainer takes it."""
    spec = EncoderSpec(
        encoder="resnet-mini", stem="auto", norm="batch", image_size=8, channels=1, mean=(0.5,), std=(0.25,)
    )
    torch.manual_seed(0)
    encoder = spec.build()
    method_class = find_method(name)
    method = method_class(encoder, int(encoder.num_features), 4, method_class.Settings())  # type: ignore[arg-type]  # timm
    optim = build_optimizer(method, optimizer, lr=0.01, momentum=0.9, weight_decay=1e-4)
    probe = OnlineProbe(method.num_features, 4, torch.device("cpu"))

    def step(views_VBCHW: Tensor, labels_B: Tensor | None) -> dict[str, Tensor]:
        views = list(views_VBCHW)
        output = method(views, labels_B)
        optim.zero_grad()
        output.loss.backward()
        optim.step()
        method.after_step(output)
        assert labels_B is not None
        return {"loss": output.loss, **probe.step(output.features_ND, labels_B.repeat(len(views)))}

    return step, method, [method, optim, *probe.parts]


def snapshot(parts: list[Any]) -> dict[Any, Tensor]:
    return Before(parts).copies


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize(
    ("name", "optimizer"), [("tcl", "sgd"), ("byol", "lars"), ("moco-v2", "adamw"), ("tcl", "adam")]
)
def test_a_skipped_step_changes_nothing_at_all(name: str, optimizer: str, first: bool) -> None:
    """Weights, batch-norm's statistics, followers, queues, momenta: images that are infinite reach them all."""
    step, method, parts = parts_of(name, optimizer)
    guarded = checked(step, method, parts, skip=True)
    images, labels = torch.randn(2, 8, 1, 8, 8, generator=torch.Generator().manual_seed(1)), torch.arange(8) % 4
    if not first:
        guarded(images, labels)
    before = snapshot(parts)
    outputs = guarded(images * INF, labels)
    assert outputs[TAKEN] == 0
    assert outputs["loss"] == 0
    assert not outputs[CHECKED].isfinite().all()
    after = snapshot(parts)
    for key, tensor in after.items():
        assert torch.equal(tensor, before.get(key, torch.zeros_like(tensor))), key

    # And the next step is the one that would have been without it.
    outputs = guarded(images, labels)
    assert outputs[TAKEN] == 1
    fresh, _, others = parts_of(name, optimizer)
    for _ in range(1 if first else 2):
        fresh(images, labels)
    expected = snapshot(others)
    for (key, tensor), (_, other) in zip(snapshot(parts).items(), expected.items(), strict=True):
        assert torch.equal(tensor, other), key


def test_without_skipping_the_step_is_what_it_was() -> None:
    step, method, parts = parts_of("tcl", "sgd")
    images, labels = torch.randn(2, 8, 1, 8, 8), torch.arange(8) % 4
    outputs = checked(step, method, parts, skip=False)(images * INF, labels)
    assert TAKEN not in outputs
    assert any(not tensor.isfinite().all() for tensor in snapshot(parts).values())


@pytest.mark.parametrize(("value", "expected"), [(3.0, 3.0), (-4e38 / 2, 4e38 / 2), (NAN, NAN), (-INF, INF)])
def test_the_largest_gradient_is_no_sum_that_overflows(value: float, expected: float) -> None:
    layer = torch.nn.Linear(3, 2)
    layer.weight.grad, layer.bias.grad = torch.ones(2, 3), torch.tensor([0.5, value])
    torch.testing.assert_close(largest_gradient(layer), torch.tensor(expected), equal_nan=True)


@pytest.mark.gpu
@pytest.mark.parametrize("engine", ["eager", "graph"])
def test_on_a_gpu_a_skipped_step_is_skipped_inside_the_recording(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps 9 and 10, long after the recording, find a weight that is NaN, and leave all else alone."""
    take_step, weights = Trainer.take_step, []

    def spoiling(self: Trainer, images_BCHW: Tensor, labels_B: Tensor | None) -> dict[str, Tensor]:
        if self.step in (8, 9):
            kept = next(self.method.parameters()).detach().clone()
            with torch.no_grad():
                next(self.method.parameters()).fill_(NAN)
            metrics = take_step(self, images_BCHW, labels_B)
            assert next(self.method.parameters()).isnan().all(), "as it was before the step"
            with torch.no_grad():
                next(self.method.parameters()).copy_(kept)
            weights.append(metrics[TAKEN].item())
            return metrics
        return take_step(self, images_BCHW, labels_B)

    monkeypatch.setattr(Trainer, "take_step", spoiling)
    settings = ("run.on_nan=skip", "run.device=cuda", f"run.engine={engine}", "run.log_every=1")
    train(tmp_path / "run", "digits", "optim.epochs=2", "eval.linear=none", *settings)
    assert weights == [0, 0]
    assert [line["skipped_steps"] for line in read_lines(tmp_path / "run")][-1] == 2
