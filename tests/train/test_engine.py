"""How a step is run: what is chosen where, and that every way is the same step."""

from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import PLAIN, contune, read_lines, train
from torch import Tensor

from contune.device import choose_autocast
from contune.errors import UserError
from contune.methods import METHODS, find_method
from contune.methods.base import Output
from contune.models import EncoderSpec
from contune.train.engine import (
    STEPS_WORTH_COMPILING,
    STEPS_WORTH_MORE_THAN_FUSED,
    Engine,
    choose_engine,
    compiled_forward,
    eager_forward,
)
from contune.train.trainer import Trainer

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
LONG, LONGER = STEPS_WORTH_COMPILING, STEPS_WORTH_MORE_THAN_FUSED
QUICK = ("tcl", "byol", "dino", "swav")
"""One of each kind; the others take their turn in `make test-slow`."""


@pytest.mark.parametrize(
    ("name", "device", "num_steps", "compiled", "recorded"),
    [
        ("auto", CUDA, LONG, True, True),
        ("auto", CUDA, LONG - 1, False, True),
        ("auto", CPU, LONG, False, False),
        ("graph", CUDA, LONG, False, True),
        ("compile", CUDA, 1, True, True),
        ("compile", CPU, 1, True, False),
        ("eager", CUDA, LONG, False, False),
    ],
)
def test_what_is_chosen(name: str, device: torch.device, num_steps: int, compiled: bool, recorded: bool) -> None:
    engine = choose_engine(name, device=device, num_steps=num_steps, fusable=False)
    assert engine == Engine(compiled=compiled, recorded=recorded, fused=False)


@pytest.mark.parametrize(
    ("name", "device", "num_steps", "compiled", "fused"),
    [
        ("auto", CUDA, 1, False, True),
        ("auto", CUDA, LONGER - 1, False, True),
        ("auto", CUDA, LONGER, True, False),
        ("auto", CPU, LONGER, False, False),
        ("fused", CUDA, LONGER, False, True),
        ("graph", CUDA, LONG, False, False),
        ("compile", CUDA, 1, True, False),
    ],
)
def test_what_is_chosen_for_norms_that_can_be_fused(
    name: str, device: torch.device, num_steps: int, compiled: bool, fused: bool
) -> None:
    engine = choose_engine(name, device=device, num_steps=num_steps, fusable=True)
    assert engine == Engine(compiled=compiled, recorded=device == CUDA, fused=fused)


def test_an_engine_in_words() -> None:
    assert str(Engine(compiled=False, recorded=False)) == "eager"
    assert str(Engine(compiled=True, recorded=True)) == "compiled and recorded as a CUDA graph"
    assert str(Engine(compiled=False, recorded=True, fused=True)) == "fused and recorded as a CUDA graph"


@pytest.mark.parametrize("name", ["graph", "fused"])
def test_asking_for_a_recording_where_it_cannot_be_is_a_sentence(name: str) -> None:
    with pytest.raises(UserError, match=rf"run\.engine={name} takes a single process on a CUDA device"):
        choose_engine(name, device=CPU, num_steps=LONG, fusable=True)


def test_asking_for_kernels_that_a_network_has_no_use_for_is_a_sentence() -> None:
    with pytest.raises(UserError, match=r"run\.engine=fused has kernels for ResNets with batch-norm"):
        choose_engine("fused", device=CUDA, num_steps=LONG, fusable=False)


ignores_torchs_own_warnings = pytest.mark.filterwarnings(
    "ignore:.*torch.jit:DeprecationWarning", "ignore:.*TensorFloat32", "ignore:.*_prims_common.check:FutureWarning"
)


@ignores_torchs_own_warnings
@pytest.mark.parametrize("name", [m if m in QUICK else pytest.param(m, marks=pytest.mark.slow) for m in METHODS])
def test_every_method_compiles_as_one_graph_and_keeps_its_numbers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through the compiler's front, which finds what it cannot take in; its code generator is torch's to test."""
    torch.compiler.reset()
    compile_with = torch.compile
    monkeypatch.setattr(
        torch, "compile", lambda function, **_: compile_with(function, backend="aot_eager", fullgraph=True)
    )
    spec = EncoderSpec(
        encoder="resnet-mini", stem="auto", norm="batch", image_size=16, channels=1, mean=(0.5,), std=(0.25,)
    )
    torch.manual_seed(0)
    encoder, method_class = spec.build(), find_method(name)
    settings = method_class.Settings(**({"projector_dim": 4} if name == "w-mse" else {}))  # more images than dimensions
    method = method_class(encoder, int(encoder.num_features), 4, settings)  # type: ignore[arg-type]  # timm models carry an int
    views = [torch.randn(8, 1, 16, 16, generator=torch.Generator().manual_seed(view)) for view in range(2)]
    labels, autocast = torch.arange(8) % 4, choose_autocast("fp32", CPU)

    outputs: list[Output] = []
    gradients = []
    for build in (eager_forward, compiled_forward):
        method.zero_grad()
        outputs.append(build(method, autocast)(views, labels))
        outputs[-1].loss.backward()
        gradients.append([parameter.grad for parameter in method.parameters() if parameter.grad is not None])
    torch.testing.assert_close(outputs[0].loss, outputs[1].loss)
    torch.testing.assert_close(outputs[0].features_ND, outputs[1].features_ND)
    torch.testing.assert_close(outputs[0].state, outputs[1].state, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-5)
    assert outputs[0].metrics.keys() == outputs[1].metrics.keys()


GPU_RUN = ("digits", "optim.lr=0.0003", "run.log_every=1", "run.precision=fp32", "run.device=cuda")
"""At a rate at which the rounding of 200 steps stays below the tolerance."""


@pytest.fixture
def reproducible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


@pytest.mark.gpu
@ignores_torchs_own_warnings
@pytest.mark.usefixtures("reproducible")
@pytest.mark.parametrize(("engine", "tolerance"), [("graph", 2e-3), ("compile", 1e-2), ("fused", 1e-2)])
def test_every_engine_has_the_losses_of_the_eager_one_over_200_steps(
    engine: str, tolerance: float, tmp_path: Path
) -> None:
    """What is fused is rounded once and not after each of its parts: the compiler's losses are nearly the same."""
    losses = []
    for name in ("eager", engine):
        train(tmp_path / name, *GPU_RUN, "optim.epochs=40", f"run.engine={name}")
        losses.append([line["loss"] for line in read_lines(tmp_path / name)][:200])
    assert len(losses[0]) == 200
    assert losses[1] == pytest.approx(losses[0], rel=tolerance)


@pytest.mark.gpu
@ignores_torchs_own_warnings
@pytest.mark.usefixtures("reproducible")
@pytest.mark.parametrize("engine", ["graph", "compile", "fused"])
def test_a_run_that_was_stopped_goes_on_exactly(engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped by a step that fails, in the middle of an epoch and long after the recording."""
    settings = (*GPU_RUN, "optim.epochs=8", "run.checkpoint_seconds=0", f"run.engine={engine}")
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
