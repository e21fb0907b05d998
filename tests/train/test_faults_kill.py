"""Fifty kills at random moments, and the end is that of a run nobody disturbed, to the last bit."""

import os
import random
import re
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest
import torch
from command_line import PLAIN, read_lines, start
from killing import finish, kill_until_done, run_config, server
from safetensors.torch import load_file

from contune.train.checkpoint import read_checkpoint

KILLS = 50


def assert_same_end(folder: Path, whole: Path) -> None:
    weights, expected = (load_file(path / "encoder.safetensors") for path in (folder, whole))
    assert weights.keys() == expected.keys()
    assert all(torch.equal(weights[name], expected[name]) for name in expected)
    assert read_lines(folder) == read_lines(whole)


@pytest.mark.slow
def test_fifty_kills(tmp_path: Path) -> None:
    """One run after another until there were fifty; how many runs that takes depends on the machine's mood."""
    context, chance = server(), random.Random(0)
    whole = tmp_path / "whole"
    finish(context, run_config(), tmp_path / "warm-up")
    seconds = finish(context, run_config(), whole)
    done = number = 0
    while done < KILLS:
        folder = tmp_path / str(number)
        done += kill_until_done(context, run_config(), folder, chance, seconds=seconds, most=min(KILLS - done, 20))
        finish(context, run_config(), folder)
        assert_same_end(folder, whole)
        number += 1
    print(f"{done} kills of {number} runs, {seconds:.1f} s each if left alone")


RUN = (
    "digits", "optim.epochs=6", "data.val_fraction=0.28", "model.norm=group", "eval.linear=none", "run.log_every=2",
    "run.checkpoint_seconds=0",
)  # fmt: skip
STEPS = 6 * 10


def launched(folder: Path, *, max_restarts: int = 0) -> "subprocess.Popen[str]":
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    options = ("--nproc-per-node=2", f"--master-port={port}", f"--max-restarts={max_restarts}")
    return start("train", *RUN, *PLAIN, "--out", folder, launcher=("torch.distributed.run", *options))


def in_two(folder: Path, *, kill_at: list[int]) -> str:
    """`torchrun` with two processes and restarts; at each of the given steps one is killed. What was printed."""
    chance, done = random.Random(1), 0
    with launched(folder, max_restarts=len(kill_at)) as process:
        deadline = time.monotonic() + 600
        while process.poll() is None and done < len(kill_at):
            if time.monotonic() > deadline:
                process.terminate()  # and its output, below, says why
                break
            ranks = children(process.pid)
            if len(ranks) == 2 and saved_step(folder) >= kill_at[done]:
                os.kill(chance.choice(ranks), signal.SIGKILL)
                done += 1
                while set(children(process.pid)) & set(ranks) and process.poll() is None:
                    time.sleep(0.05)  # until the launcher has ended both, so that none is counted twice
            time.sleep(0.01)
        printed, _ = process.communicate(timeout=600)
    assert process.returncode == 0, printed
    assert done == len(kill_at), printed
    return printed


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


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two processes that nobody disturbed."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    in_two(folder, kill_at=[])
    return folder


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds processes in /proc")
def test_torchrun_restarts_a_run_whose_processes_are_killed(whole: Path, tmp_path: Path) -> None:
    in_two(tmp_path / "killed", kill_at=[2, 20, 33])
    assert [line["step"] for line in read_lines(tmp_path / "killed")] == list(range(2, STEPS + 1, 2))
    assert_same_end(tmp_path / "killed", whole)


@pytest.mark.slow
@pytest.mark.parametrize("whom", ["launcher", "one process"])
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds processes in /proc")
def test_sigterm_under_torchrun_saves_once_for_all(whom: str, whole: Path, tmp_path: Path) -> None:
    """All processes stop at the same step, at which process 0 saves; then the same command goes on."""
    folder = tmp_path / "stopped"
    with launched(folder) as process:
        deadline = time.monotonic() + 300
        while saved_step(folder) < 6:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
        os.kill(process.pid if whom == "launcher" else children(process.pid)[-1], signal.SIGTERM)
        printed, _ = process.communicate(timeout=300)
    assert process.returncode != 0
    assert "contune: stopped by SIGTERM; the same command goes on from the last checkpoint" in printed
    if whom == "one process":
        assert re.search(r"exitcode *: 75", printed), printed
    assert 6 <= saved_step(folder) < STEPS
    assert saved_step(folder) == read_lines(folder)[-1]["step"]
    in_two(folder, kill_at=[])
    assert_same_end(folder, whole)
