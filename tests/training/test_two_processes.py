"""Two processes on half a batch each compute what one computes on all of it, and survive signals and kills."""

import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from command_line import PLAIN, branch_off, contune, read_lines, start, train
from pictures import random_pixels, write_png
from safetensors.torch import load_file
from small_heads import small_heads_as_text

from contune.training.log import read_checkpoint

RUN = ("digits", "optim.epochs=2", "data.val_fraction=0.7", "model.norm=group", "run.log_every=1", "eval.linear=none")
"""Without batch-norm, whose statistics are shared on GPUs only; four steps an epoch."""
RATES = {"tcl": 3e-4, "supcon": 3e-4, "simclr": 3e-4, "cross-entropy": 1e-4, "npair": 3e-4}
RATES |= {"vicreg": 1e-5, "barlow-twins": 5e-6, "w-mse": 3e-5, "arb": 1e-4}
RATES |= {"byol": 1e-4, "simsiam": 2e-3, "moco-v2": 3e-4, "ressl": 3e-4}
RATES |= {"dino": 3e-4, "swav": 3e-4}
"""Low ones: at 0.1 float32 itself departs by more than 1e-5 within ten steps, whenever a ReLU over the many equal
pixels of the background changes sides. In float64 the two runs agree to 1e-15 at any rate."""
QUICK = ("tcl",)
"""`make test-slow` tests the others."""
OF_ITS_OWN_VIEWS = {"feature_std", "effective_rank", "uniformity", "hard_theorem1_share"}
"""Measured by each process on its part of the batch; their mean is another number."""
LONG = (
    *RUN[:1],
    "optim.epochs=6",
    "data.val_fraction=0.28",
    *RUN[3:4],
    "run.log_every=2",
    "run.checkpoint_seconds=0",
    "eval.linear=none",
)
LONG_STEPS = 6 * 10


def free_port() -> str:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return str(found.getsockname()[1])


def launched(folder: Path, *settings: str, max_restarts: int = 0) -> "subprocess.Popen[str]":
    """`torchrun --nproc-per-node=2 -m contune train SETTINGS`."""
    options = ("--nproc-per-node=2", f"--master-port={free_port()}", f"--max-restarts={max_restarts}")
    return start("train", *settings, *PLAIN, "--out", folder, launcher=("torch.distributed.run", *options))


@pytest.mark.parametrize("in_chunks", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("method", [m if m in QUICK else pytest.param(m, marks=pytest.mark.slow) for m in RATES])
def test_losses_and_weights_follow_the_single_process(method: str, in_chunks: bool, tmp_path: Path) -> None:
    """Also if they encode their part of the batch in chunks, and mix images of one another."""
    mixed = ("augment.mix=cutmix",) if in_chunks else ()
    assert_two_follow_one(method, tmp_path, mixed, ["optim.micro_batch=24"] * in_chunks)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["tcl", "supcon", "cross-entropy", "npair"])
def test_weighted_losses_follow_the_single_process(method: str, tmp_path: Path) -> None:
    """Each process has another sum of weights; npair computes the anchors of both."""
    assert_two_follow_one(method, tmp_path, ("optim.balance=weights", "data.imbalance=3", "optim.batch_images=40"))


def assert_two_follow_one(method: str, tmp_path: Path, more: Sequence[str], shared_only: Sequence[str] = ()) -> None:
    alone, shared = tmp_path / "alone", tmp_path / "shared"
    arguments = (*RUN, f"method.name={method}", f"optim.lr={RATES[method]}", *small_heads_as_text(method), *more)
    meeting = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}  # as torchrun sets it
    command = (*arguments, *shared_only, *PLAIN)
    processes = [branch_off("train", *command, "--out", shared, RANK=r, LOCAL_RANK=r, **meeting) for r in "01"]
    train(alone, *arguments)
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0, 0]
    one, two = (
        [{key: value for key, value in line.items() if key not in OF_ITS_OWN_VIEWS} for line in read_lines(folder)]
        for folder in (alone, shared)
    )
    assert [line["step"] for line in two] == [line["step"] for line in one]
    assert abs(one[0]["loss"] - one[-1]["loss"]) > 1e-3, "a loss that stands still would prove nothing"
    for line, other in zip(one, two, strict=True):
        assert other == pytest.approx(line, rel=1e-5, abs=1e-5), line["step"]
    expected, found = (load_file(folder / "encoder.safetensors") for folder in (alone, shared))
    assert expected.keys() == found.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "device", [pytest.param("cpu", marks=pytest.mark.slow), pytest.param("cuda", marks=pytest.mark.gpu)]
)
def test_two_processes_on_one_device_follow_the_single_process(
    device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On one GPU they communicate through gloo. Runs start together because most of their time is startup.

    The images are noise. Over the equal pixels of digits, ReLUs change sides together: rounding alone then moves the
    loss of a single process by 5e-4 within 50 steps at a rate of 1e-3. Over noise, at this rate, it moves by 4e-6.
    """
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0])
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "0")  # of the processes started here
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    for number in range(400):
        write_png(tmp_path / "images" / "abcd"[number % 4] / f"{number}.png", random_pixels(number))
    usual = ["images", f"data.path={tmp_path / 'images'}", "data.test_fraction=0.1", "data.val_fraction=0"]
    usual += ["data.image_size=8", "augment.policy=crop-flip padding=2", "model.encoder=resnet-mini"]
    usual += ["eval.linear=none", "optim.name=sgd", "optim.lr=3e-4", "optim.weight_decay=0", "optim.warmup_epochs=0"]
    usual += ["eval.every=0", "method.cross_entropy=0", "eval.start=false"]
    usual += [f"run.device={device}", "run.precision=fp32", "run.autotune=false", "run.keep=last", "run.log_every=1"]
    one_step = ["optim.epochs=1", "optim.batch_images=200"]
    runs = {
        "long": ["optim.epochs=10", "optim.batch_images=64", "model.norm=group"],
        "group": [*one_step, "model.norm=group"],
    }
    if device == "cuda":
        runs["batch"] = [*one_step, "model.norm=batch"]  # SyncBatchNorm
    processes = {name: launched(tmp_path / f"{name}-two", *usual, *runs[name]) for name in runs}
    for name, settings in runs.items():
        train(tmp_path / name, *usual, *settings, "run.engine=eager")
    for process in processes.values():
        printed, _ = process.communicate(timeout=120)
        assert process.returncode == 0, printed
        assert ("gloo" in printed) == (device == "cuda"), "they say that they share a GPU"

    one, two = (read_lines(tmp_path / name) for name in ("long", "long-two"))
    assert len(one) == len(two) == 50
    losses = max(abs(line["loss"] - other["loss"]) for line, other in zip(one, two, strict=True))
    expected, found = (load_file(tmp_path / name / "encoder.safetensors") for name in ("long", "long-two"))
    weights = max((expected[name] - found[name]).abs().max().item() for name in expected)
    train(tmp_path / "start", *usual, *runs["long"], "optim.epochs=0")
    first = load_file(tmp_path / "start" / "encoder.safetensors")
    moved = max((expected[name] - first[name]).abs().max().item() for name in expected)
    assert moved > 1e-3, "weights that stand still would prove nothing"
    print(f"\n{device}, largest difference over 50 steps: loss {losses:.1e}, weights {weights:.1e} of {moved:.1e}")
    gradients = {}
    for name in runs.keys() - {"long"}:
        states = [
            read_checkpoint(tmp_path / run / "checkpoint.pt", torch.device("cpu")) for run in (name, f"{name}-two")
        ]
        assert all(state is not None and state["step"] == 1 for state in states)
        # After one step without weight decay the momentum is the gradient.
        alone, shared = ([part["momentum_buffer"] for part in state["optimizer"]["state"].values()] for state in states)  # type: ignore[index]
        assert max(gradient.abs().max().item() for gradient in alone) > 0.01
        gradients[name] = max((a - b).abs().max().item() for a, b in zip(alone, shared, strict=True))
        print(f"{device}, model.norm={name}, largest difference of a gradient: {gradients[name]:.1e}")
    assert max(losses, weights) <= 1e-4
    assert max(gradients.values()) <= 1e-5


def test_a_batch_that_cannot_be_shared_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("contune.distributed.world_size", lambda: 2)
    outcome = contune("train", "optim.batch_images=65", *PLAIN, "--out", tmp_path / "run")
    assert (outcome.code, "batch_images=65" in outcome.err) == (2, True)
    assert not (tmp_path / "run").exists()


def children(pid: int) -> list[int]:
    """The worker processes of a launcher."""
    try:
        found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [int(child) for child in found if b"contune" in Path(f"/proc/{child}/cmdline").read_bytes()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def saved_step(folder: Path) -> int:
    state = read_checkpoint(folder / "checkpoint.pt", torch.device("cpu"))
    return 0 if state is None else int(state["step"])


def finish(folder: Path) -> None:
    with launched(folder, *LONG) as process:
        printed, _ = process.communicate(timeout=600)
    assert process.returncode == 0, printed


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An undisturbed run of two processes."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    finish(folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds processes in /proc")
def test_a_signal_to_one_process_stops_all(number: signal.Signals, whole: Path, tmp_path: Path) -> None:
    """After SIGTERM process 0 saves for all and the same command resumes; after SIGKILL torchrun restarts them."""
    folder = tmp_path / "run"
    with launched(folder, *LONG, max_restarts=int(number == signal.SIGKILL)) as process:
        deadline = time.monotonic() + 300
        while saved_step(folder) < 6 or len(children(process.pid)) < 2:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
        os.kill(children(process.pid)[-1], number)
        printed, _ = process.communicate(timeout=300)
    if number == signal.SIGTERM:
        assert re.search(r"exitcode *: 75", printed), printed
        assert 6 <= saved_step(folder) == read_lines(folder)[-1]["step"] < LONG_STEPS
        finish(folder)
    else:
        assert process.returncode == 0, printed
    weights, expected = (load_file(path / "encoder.safetensors") for path in (folder, whole))
    assert all(torch.equal(weights[name], expected[name]) for name in expected)
    assert read_lines(folder) == read_lines(whole)
