"""How a step runs: which engine is chosen, that every engine takes the same step, and that a bad step is undone."""

import gc
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import PLAIN, contune, read_lines, train
from small_run import small_method
from torch import Tensor, nn

from contune.config import ENGINES
from contune.errors import UserError
from contune.methods import METHODS
from contune.methods.base import Output
from contune.training.engine import (
    CHECKED,
    STEPS_WORTH_COMPILING,
    STEPS_WORTH_MORE_THAN_FUSED,
    TAKEN,
    Engine,
    Step,
    changed_tensors,
    choose_engine,
    compiled,
    largest_gradient,
    undoable,
)
from contune.training.monitors import OnlineProbe
from contune.training.optim import build_optimizer
from contune.training.trainer import Trainer

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
LONG, LONGER = STEPS_WORTH_COMPILING, STEPS_WORTH_MORE_THAN_FUSED
NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("name", "device", "num_steps", "fusable", "words"),
    [
        ("auto", CUDA, LONG, False, "compiled and captured as a CUDA graph"),
        ("auto", CUDA, LONG - 1, False, "captured as a CUDA graph"),
        ("auto", CPU, LONGER, True, "eager"),
        ("auto", CUDA, 1, True, "fused and captured as a CUDA graph"),
        ("auto", CUDA, LONGER - 1, True, "fused and captured as a CUDA graph"),
        ("auto", CUDA, LONGER, True, "compiled and captured as a CUDA graph"),
        ("graph", CUDA, LONG, False, "captured as a CUDA graph"),
        ("fused", CUDA, LONGER, True, "fused and captured as a CUDA graph"),
        ("compile", CUDA, 1, False, "compiled and captured as a CUDA graph"),
        ("compile", CPU, 1, False, "compiled"),
        ("eager", CUDA, LONG, True, "eager"),
    ],
)
def test_which_engine_is_chosen(name: str, device: torch.device, num_steps: int, fusable: bool, words: str) -> None:
    engine = choose_engine(name, device=device, num_steps=num_steps, fusable=fusable)
    assert str(engine) == words
    assert engine == Engine(compiled="compiled" in words, captured="captured" in words, fused="fused" in words)


@pytest.mark.parametrize(
    ("name", "device", "fusable"), [("graph", CPU, True), ("fused", CPU, True), ("fused", CUDA, False)]
)
def test_an_engine_that_is_not_possible_is_an_error(name: str, device: torch.device, fusable: bool) -> None:
    with pytest.raises(UserError, match=f"engine={name}"):
        choose_engine(name, device=device, num_steps=LONG, fusable=fusable)


@pytest.mark.parametrize("name", ENGINES)
def test_processes_that_share_a_gpu_train_eagerly(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("contune.distributed.uses_gloo", lambda: True)
    assert str(choose_engine(name, device=CUDA, num_steps=LONGER, fusable=True)) == "eager"


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_every_method_compiles_as_one_graph_and_keeps_its_numbers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the compiler's front end, which finds what it cannot trace; its code generator is torch's to test."""
    torch.compiler.reset()
    compile_with = torch.compile
    monkeypatch.setattr(
        torch, "compile", lambda function, **_: compile_with(function, backend="aot_eager", fullgraph=True)
    )
    method = small_method(name, **({"projector_dim": 4} if name == "w-mse" else {}))  # more images than dimensions
    views = [torch.randn(8, 1, 8, 8, generator=torch.Generator().manual_seed(view)) for view in range(2)]
    labels = torch.arange(8) % 4
    outputs: list[Output] = []
    gradients = []
    for model in (method, compiled(method)):
        method.zero_grad()
        outputs.append(model(views, labels))
        outputs[-1].loss.backward()
        gradients.append([parameter.grad for parameter in method.parameters() if parameter.grad is not None])
    torch.testing.assert_close(outputs[0].loss, outputs[1].loss)
    torch.testing.assert_close(outputs[0].features_ND, outputs[1].features_ND)
    torch.testing.assert_close(outputs[0].state, outputs[1].state, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-5)
    assert outputs[0].metrics.keys() == outputs[1].metrics.keys()


def parts_of(name: str, optimizer: str) -> tuple[Step, list[Any]]:
    """A method with its optimizer and probe, and a step of theirs as the trainer takes it."""
    method = small_method(name)
    optim = build_optimizer(method, optimizer, lr=0.01, momentum=0.9, weight_decay=1e-4)
    probe = OnlineProbe(method.num_features, 4, CPU)

    def step(views_VBCHW: Tensor, labels_B: Tensor | None) -> dict[str, Tensor]:
        views = list(views_VBCHW)
        output = method(views, labels_B)
        optim.zero_grad()
        output.loss.backward()
        optim.step()
        method.after_step(output)
        assert labels_B is not None
        probed = probe.step(output.features_ND, labels_B.repeat(len(views)))
        return {"loss": output.loss, **probed, CHECKED: torch.stack([output.loss.detach(), largest_gradient(method)])}

    return step, [method, optim, probe.classifier, probe.optimizer]


def test_a_skipped_step_restores_buffers_that_a_module_assigns() -> None:
    module: Any = nn.Module()
    module.register_buffer("mean", torch.zeros(()))

    def step(x: Tensor, labels_B: Tensor | None) -> dict[str, Tensor]:
        module.mean = module.mean + x
        return {"loss": x, CHECKED: x}

    run = undoable(step, [module])
    run(torch.tensor(2.0), None)
    run(torch.tensor(float("nan")), None)
    assert module.mean == 2


def snapshot(parts: list[Any]) -> dict[object, Tensor]:
    return {key: tensor.clone() for key, tensor in changed_tensors(parts)}


@pytest.mark.parametrize(
    ("name", "optimizer", "first"),
    [("tcl", "sgd", True), ("byol", "lars", False), ("moco-v2", "adamw", True), ("tcl", "adam", False)],
)
def test_a_skipped_step_changes_nothing_at_all(name: str, optimizer: str, first: bool) -> None:
    """Weights, batch-norm statistics, momentum encoders, queues, momenta: infinite images reach them all."""
    step, parts = parts_of(name, optimizer)
    guarded = undoable(step, parts)
    images, labels = torch.randn(2, 8, 1, 8, 8, generator=torch.Generator().manual_seed(1)), torch.arange(8) % 4
    if not first:
        guarded(images, labels)
    before = snapshot(parts)
    outputs = guarded(images * INF, labels)
    assert outputs[TAKEN] == outputs["loss"] == 0
    assert not outputs[CHECKED].isfinite().all()
    for key, tensor in snapshot(parts).items():
        assert torch.equal(tensor, before.get(key, torch.zeros_like(tensor)))

    # The next step is the one that would have come without it.
    outputs = guarded(images, labels)
    assert outputs[TAKEN] == 1
    fresh, others = parts_of(name, optimizer)
    for _ in range(1 if first else 2):
        fresh(images, labels)
    for tensor, other in zip(snapshot(parts).values(), snapshot(others).values(), strict=True):
        assert torch.equal(tensor, other)


@pytest.mark.parametrize(("value", "expected"), [(3.0, 3.0), (-4e38 / 2, 4e38 / 2), (NAN, NAN), (-INF, INF)])
def test_the_largest_gradient_is_no_sum_that_overflows(value: float, expected: float) -> None:
    layer = nn.Linear(3, 2)
    layer.weight.grad, layer.bias.grad = torch.ones(2, 3), torch.tensor([0.5, value])
    torch.testing.assert_close(largest_gradient(layer), torch.tensor(expected), equal_nan=True)


FIXED = ("run.log_every=1", "run.precision=fp32", "run.autotune=false", "run.device=cuda", "eval.linear=none")
GPU_RUN = ("digits", "optim.lr=0.0003", *FIXED)
"""At a rate at which the rounding of 200 steps stays below the tolerance."""


@pytest.fixture
def reproducible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


@pytest.mark.gpu
@pytest.mark.usefixtures("reproducible")
@pytest.mark.parametrize("balance", ["none", "weights"])
@pytest.mark.parametrize(("engine", "tolerance"), [("graph", 2e-3), ("compile", 1e-2), ("fused", 1e-2)])
def test_every_engine_has_the_curves_of_the_eager_one(
    engine: str, tolerance: float, balance: str, tmp_path: Path
) -> None:
    """Losses over 200 steps, gradient responses over ten. Fused operations round once and not after each part."""
    curves = []
    for name in ("eager", engine):
        train(tmp_path / name, *GPU_RUN, "optim.epochs=15", f"run.engine={name}", f"optim.balance={balance}")
        curves.append(read_lines(tmp_path / name)[:200])
    eager, other = curves
    assert len(eager) == 200
    assert [line["loss"] for line in other] == pytest.approx([line["loss"] for line in eager], rel=tolerance)
    for name in ("positive_gradient", "negative_gradient", "theorem1_share"):
        assert [line[name] for line in other[:10]] == pytest.approx([line[name] for line in eager[:10]], rel=2e-2)


@pytest.mark.gpu
@pytest.mark.usefixtures("reproducible")
@pytest.mark.parametrize("engine", ["graph", "compile", "fused"])
def test_a_stopped_run_resumes_exactly(engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped in the middle of an epoch and long after the capture."""
    settings = (*GPU_RUN, "optim.epochs=4", "run.checkpoint_seconds=0", f"run.engine={engine}", "augment.mix=cutmix")
    train(tmp_path / "whole", *settings)
    take_step = Trainer.take_step

    def failing(self: Trainer, *batch: Any) -> dict[str, Tensor]:
        if self.step == 31:
            raise KeyboardInterrupt
        return take_step(self, *batch)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "take_step", failing)
        assert contune("train", *settings, *PLAIN, "--out", tmp_path / "parts").code == 130
    train(tmp_path / "parts", *settings)
    whole, parts = (
        [(line["step"], line["loss"]) for line in read_lines(tmp_path / name)] for name in ("whole", "parts")
    )
    assert parts == whole


@pytest.mark.gpu
@pytest.mark.parametrize("engine", ["eager", "graph"])
def test_on_a_gpu_a_bad_step_is_skipped_inside_the_capture(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps 9 and 10, long after the capture, find a weight that is NaN, and leave everything else alone."""
    take_step, taken = Trainer.take_step, []

    def spoiling(self: Trainer, images_BCHW: Tensor, labels_B: Tensor | None) -> dict[str, Tensor]:
        if self.step not in (8, 9):
            return take_step(self, images_BCHW, labels_B)
        weight = next(self.method.parameters())
        kept = weight.detach().clone()
        with torch.no_grad():
            weight.fill_(NAN)
        metrics = take_step(self, images_BCHW, labels_B)
        assert weight.isnan().all(), "as it was before the step"
        with torch.no_grad():
            weight.copy_(kept)
        taken.append(metrics[TAKEN].item())
        return metrics

    monkeypatch.setattr(Trainer, "take_step", spoiling)
    settings = ("run.on_nan=skip", "run.device=cuda", f"run.engine={engine}", "run.log_every=1")
    train(tmp_path / "run", "digits", "optim.epochs=2", "eval.linear=none", *settings)
    assert taken == [0, 0]
    assert read_lines(tmp_path / "run")[-1]["skipped_steps"] == 2


@pytest.mark.gpu
def test_a_captured_step_frees_its_memory_before_the_evaluation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reserved: list[int] = []
    release = Trainer.release_memory

    def measured(self: Trainer) -> None:
        reserved.append(torch.cuda.memory_reserved())
        release(self)
        reserved.append(torch.cuda.memory_reserved())

    monkeypatch.setattr(Trainer, "release_memory", measured)
    gc.collect()
    torch.cuda.empty_cache()
    others = torch.cuda.memory_reserved()  # what earlier tests left
    train(tmp_path / "run", *GPU_RUN, "optim.epochs=2", "run.engine=graph", "model.encoder=resnet18")
    assert reserved[1] - others < (reserved[0] - others) / 2
