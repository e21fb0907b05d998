"""A run that was stopped, by whatever means, ends as if it had not been."""

import re
import shutil
import signal
import time
from pathlib import Path

import pytest
import torch
from command_line import PLAIN, contune, read_json, read_lines, start, train
from safetensors.torch import load_file
from small_heads import small_heads_as_text

from contune.methods import METHODS
from contune.train.log import MetricsLog

RUN = (
    "digits",
    "optim.epochs=3",
    "run.log_every=1",
    "run.checkpoint_seconds=0",
    "eval.linear=none",
    "eval.online=true",
)
STEPS = 3 * 14
WITH_STATE = ("byol", "moco-v2", "swav")
"""Methods that keep a network or a queue beside the trained one; the others take their turn in `make test-slow`."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An uninterrupted run."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    train(folder, *RUN)
    return folder


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run, ended by Ctrl-C at the moment it logs step 20."""
    folder, write = tmp_path_factory.mktemp("interrupted") / "run", MetricsLog.write

    def write_until_20(self: MetricsLog, step: int, values: dict[str, float]) -> None:
        if step == 20:
            raise KeyboardInterrupt
        write(self, step, values)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MetricsLog, "write", write_until_20)
        outcome = contune("train", *RUN, *PLAIN, "--out", folder)
    assert outcome.code == 130
    assert f"the same command goes on from {folder}/checkpoint.pt" in outcome.out
    return folder


@pytest.fixture
def stopped(interrupted: Path, tmp_path: Path) -> Path:
    """A copy to go on with: checkpoints of steps 19 and 18."""
    return shutil.copytree(interrupted, tmp_path / "run")


def assert_same_end(folder: Path, whole: Path) -> None:
    ours, theirs = (read_json(path / "result.json") for path in (folder, whole))
    assert ours["measures"] == theirs["measures"]
    assert read_lines(folder) == read_lines(whole)
    weights, expected = (load_file(path / "encoder.safetensors") for path in (folder, whole))
    assert weights.keys() == expected.keys()
    assert all(torch.equal(weights[name], expected[name]) for name in expected)


def test_the_uninterrupted_run_logs_every_step_once(whole: Path) -> None:
    assert [line["step"] for line in read_lines(whole)] == list(range(1, STEPS + 1))


def test_killed_in_mid_epoch_and_started_again(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    metrics, checkpoint = folder / "metrics.jsonl", folder / "checkpoint.pt"
    with start("train", *RUN, *PLAIN, "--out", folder) as process:
        deadline = time.monotonic() + 60
        while not (checkpoint.exists() and len(metrics.read_text().splitlines()) >= 5):
            assert process.poll() is None, "it ended before it could be killed"
            assert time.monotonic() < deadline
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    assert 5 <= len(metrics.read_text().splitlines()) < STEPS
    assert not (folder / "result.json").exists()

    train(folder, *RUN)
    assert_same_end(folder, whole)


def test_ctrl_c_leaves_a_run_that_goes_on(whole: Path, stopped: Path) -> None:
    assert torch.load(stopped / "checkpoint.pt")["step"] == 19
    outcome = contune("train", *RUN, *PLAIN, "--out", stopped)
    assert "\ngoes on from step 19 of 42\n" in outcome.out
    assert re.search(r"^took     \d+ s since it went on from step 19: data \d+ s, training", outcome.out, re.MULTILINE)
    assert read_json(stopped / "result.json")["resumed_at"] == 19
    assert_same_end(stopped, whole)
    again = contune("train", *RUN, *PLAIN, "--out", stopped)
    assert "since it went on from step 19" in again.out, "of a finished run its result is told"


def test_a_run_without_a_stop_does_not_go_on_from_anywhere(tmp_path: Path) -> None:
    outcome = contune("train", "digits", "optim.epochs=1", "eval.linear=none", *PLAIN, "--out", tmp_path / "run")
    assert "), 1 epoch of 64 images × 2 views = 128 embeddings a batch" in outcome.out
    assert "on from" not in outcome.out
    assert re.search(r"^took     \d+ s: data \d+ s, training", outcome.out, re.MULTILINE)
    assert "resumed_at" not in read_json(tmp_path / "run" / "result.json")


@pytest.mark.parametrize("method", [m if m in WITH_STATE else pytest.param(m, marks=pytest.mark.slow) for m in METHODS])
def test_every_methods_own_state_goes_on(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Queues, followers and centres: two short epochs, ended by Ctrl-C in the middle of the second."""
    settings = ("digits", f"method.name={method}", *small_heads_as_text(method), "optim.epochs=2", "optim.lr=0.01")
    rest = ("data.val_fraction=0.72", "run.log_every=1", "run.checkpoint_seconds=0", "eval.linear=none")
    train(tmp_path / "whole", *settings, *rest)
    write = MetricsLog.write

    def write_until_5(self: MetricsLog, step: int, values: dict[str, float]) -> None:
        if step == 5:
            raise KeyboardInterrupt
        write(self, step, values)

    with monkeypatch.context() as patch:
        patch.setattr(MetricsLog, "write", write_until_5)
        assert contune("train", *settings, *rest, *PLAIN, "--out", tmp_path / "parts").code == 130
    assert torch.load(tmp_path / "parts" / "checkpoint.pt")["step"] == 4
    train(tmp_path / "parts", *settings, *rest)
    assert_same_end(tmp_path / "parts", tmp_path / "whole")


def test_lines_beyond_the_checkpoint_and_half_a_line_are_written_again(whole: Path, stopped: Path) -> None:
    with (stopped / "metrics.jsonl").open("a") as file:
        file.write('{"step": 20, "loss": 0.5}\n{"step": 21, "lo')
    train(stopped, *RUN)
    assert_same_end(stopped, whole)


def test_a_truncated_checkpoint_falls_back_to_the_one_before(whole: Path, stopped: Path) -> None:
    content = (stopped / "checkpoint.pt").read_bytes()
    (stopped / "checkpoint.pt").write_bytes(content[: len(content) // 2])
    train(stopped, *RUN)
    assert_same_end(stopped, whole)


@pytest.mark.parametrize("damage", [b"", b"not a checkpoint", b"PK\x03\x04 a broken archive"])
def test_two_damaged_checkpoints_are_a_sentence(stopped: Path, damage: bytes) -> None:
    for name in ("checkpoint.pt", "checkpoint.previous.pt"):
        (stopped / name).write_bytes(damage)
    outcome = contune("train", *RUN, *PLAIN, "--out", stopped)
    assert outcome.code == 2
    assert outcome.err == (
        f"contune: checkpoint.pt and checkpoint.previous.pt in {stopped} cannot be read; "
        "remove the folder to start over\n"
    )


def test_a_checkpoint_that_would_run_code_is_not_read(stopped: Path) -> None:
    for name in ("checkpoint.pt", "checkpoint.previous.pt"):
        torch.save({"step": Path("anything but numbers")}, stopped / name)
    outcome = contune("train", *RUN, *PLAIN, "--out", stopped)
    assert (outcome.code, "cannot be read" in outcome.err) == (2, True)


def test_a_finished_run_returns_at_once_with_the_same_result(whole: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in whole.iterdir()}
    expected = read_json(whole / "result.json")
    outcome = contune("train", *RUN, *PLAIN, "--out", whole)
    assert outcome.code == 0
    assert f"{expected['knn_top1']:.2f}" in outcome.out
    assert {path: path.stat().st_mtime_ns for path in whole.iterdir()} == before


def test_machine_settings_may_change_and_nothing_else(whole: Path, stopped: Path) -> None:
    outcome = contune("train", *RUN, "method.k1=7", "optim.lr=0.2", *PLAIN, "--out", stopped)
    assert outcome.code == 2
    assert outcome.err == (
        f"contune: {stopped} holds a run with another method.k1, optim.lr; "
        "give another folder with --out, or remove this one\n"
    )
    train(stopped, *RUN, "run.checkpoint_seconds=60", "data.workers=0")
    assert_same_end(stopped, whole)
