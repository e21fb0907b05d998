"""A run that was stopped, by whatever means, ends as if it had not been: the same weights and the same log."""

import os
import random
import shutil
import signal
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import PLAIN, Outcome, branch_off, contune, last_line, read_json, read_lines, train
from pictures import write_classes
from safetensors.torch import load_file
from small_heads import small_heads_as_text
from torch import Tensor

from contune.methods import METHODS
from contune.training import signals
from contune.training.log import read_checkpoint
from contune.training.signals import RESUME_CODE, Stopped, put_off, stoppable
from contune.training.trainer import Trainer

RUN = (
    "digits",
    "optim.epochs=3",
    "data.val_fraction=0.9",
    "optim.batch_images=16",
    "eval.linear=none",
    "eval.online=true",
    "augment.mix=cutmix",
)
STEPS = 3 * 5
WITH_STATE = ("swav",)
"""Methods with a network or a queue beside the trained one; `make test-slow` tests the others."""
KILLS = 50


def train_until(step: int, folder: Path, *arguments: str, by: signal.Signals = signal.SIGTERM) -> Outcome:
    """A run that gets a signal in the middle of a step."""
    take_step = Trainer.take_step

    def interrupted(self: Trainer, *batch: Any) -> dict[str, Tensor]:
        if self.step == step - 1:
            assert signal.getsignal(by) is signals._receive
            signal.raise_signal(by)
        return take_step(self, *batch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "take_step", interrupted)
        return contune("train", *(arguments or RUN), *PLAIN, "--out", folder)


@pytest.fixture(scope="module", autouse=True)
def _ctrl_c() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a script that starts the tests may have it ignored


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Uninterrupted runs, by their `run.log_every`."""
    folders = {every: tmp_path_factory.mktemp("whole") / "run" for every in (1, 4)}
    for every, folder in folders.items():
        train(folder, *RUN, f"run.log_every={every}")
    return folders


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with checkpoints of steps 7 and 8, ended by Ctrl-C."""
    folder = tmp_path_factory.mktemp("interrupted") / "run"
    outcome = train_until(8, folder, *RUN, "run.log_every=1", "run.checkpoint_seconds=0", by=signal.SIGINT)
    assert outcome.code == 130
    return folder


@pytest.fixture
def stopped(interrupted: Path, tmp_path: Path) -> Path:
    return shutil.copytree(interrupted, tmp_path / "run")


def assert_same_end(folder: Path, whole: Path) -> None:
    weights, expected = (load_file(path / "encoder.safetensors") for path in (folder, whole))
    assert weights.keys() == expected.keys()
    assert all(torch.equal(weights[name], expected[name]) for name in expected)
    assert read_lines(folder) == read_lines(whole)
    assert read_json(folder / "result.json")["measures"] == read_json(whole / "result.json")["measures"]


def assert_stopped_and_resumed(stops: Iterable[int], every: int, folder: Path, whole: Path) -> None:
    arguments = (*RUN, f"run.log_every={every}")
    for step in sorted(stops):
        outcome = train_until(step, folder, *arguments)
        assert outcome.code == RESUME_CODE
        assert "SIGTERM" in last_line(outcome.err)
        assert "Traceback" not in outcome.err
        assert torch.load(folder / "checkpoint.pt")["step"] == step
    train(folder, *arguments)
    assert_same_end(folder, whole)


@pytest.mark.parametrize(("stops", "every"), [((3, 9), 4), ((1, STEPS - 1), 1)])
def test_sigterm_at_any_step(stops: tuple[int, ...], every: int, whole: dict[int, Path], tmp_path: Path) -> None:
    """In mid-epoch, at its end, between log points and on them; also twice in a row."""
    assert_stopped_and_resumed(stops, every, tmp_path / "run", whole[every])


def test_ctrl_c_saves_and_the_run_says_where_it_resumes(whole: dict[int, Path], stopped: Path) -> None:
    assert torch.load(stopped / "checkpoint.pt")["step"] == 8
    outcome = contune("train", *RUN, "run.log_every=1", *PLAIN, "--out", stopped)
    assert "step 8 of 15" in outcome.out
    assert read_json(stopped / "result.json")["resumed_at"] == 8
    assert_same_end(stopped, whole[1])


def test_a_signal_while_there_is_nothing_to_save_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, code in ((signal.SIGTERM, RESUME_CODE), (signal.SIGINT, 130)):
        monkeypatch.setattr(
            "contune.training.session.open_setup", lambda config, number=number, **_: signal.raise_signal(number)
        )
        assert contune("train", *RUN, *PLAIN, "--out", tmp_path / "run").code == code
        assert not (tmp_path / "run").exists()


def test_sigterm_during_the_last_step_stops_before_the_evaluation(tmp_path: Path) -> None:
    assert train_until(STEPS, tmp_path / "run").code == RESUME_CODE
    assert not (tmp_path / "run" / "encoder.safetensors").exists()


@pytest.mark.parametrize("number", [pytest.param(signal.SIGTERM, marks=pytest.mark.slow), signal.SIGKILL])
def test_a_process_that_is_stopped_or_killed_from_outside(
    number: signal.Signals, whole: dict[int, Path], tmp_path: Path
) -> None:
    folder, settings = tmp_path / "run", (*RUN, "run.log_every=1", "run.checkpoint_seconds=0")
    process = branch_off("train", *settings, *PLAIN, "--out", folder)
    deadline = time.monotonic() + 120
    while not (folder / "checkpoint.pt").exists():
        assert process.is_alive(), "it ended before it could be stopped"
        assert time.monotonic() < deadline
        time.sleep(0.005)
    os.kill(process.pid or 0, number)
    process.join(60)
    assert process.exitcode == (RESUME_CODE if number == signal.SIGTERM else -number)
    train(folder, *settings)
    assert_same_end(folder, whole[1])


def run_for(folder: Path, seconds: float | None = None) -> bool:
    """Forty steps, killed after some seconds. Whether they have ended before, as they have to without a limit."""
    settings = (*RUN, "optim.epochs=8", "run.log_every=2", "run.checkpoint_seconds=0", *PLAIN)
    process = branch_off("train", *settings, "--out", folder)
    process.join(seconds)
    ended = process.exitcode == 0
    process.kill()
    process.join()
    assert ended or seconds is not None
    return ended


@pytest.mark.slow
def test_fifty_kills(tmp_path: Path) -> None:
    """At random moments, most of them early, so that each run is killed often. A kill never damages a checkpoint."""
    chance, whole = random.Random(0), tmp_path / "whole"
    run_for(tmp_path / "warm-up")
    began = time.monotonic()
    run_for(whole)
    seconds, kills, number = time.monotonic() - began, 0, 0
    while kills < KILLS:
        folder = tmp_path / str(number)
        while kills < KILLS and not run_for(folder, chance.uniform(0, seconds if kills % 5 == 4 else seconds / 4)):
            kills += 1
            for file in folder.glob("checkpoint*.pt"):
                assert read_checkpoint(file, torch.device("cpu")) is not None
        run_for(folder)
        assert_same_end(folder, whole)
        number += 1


@pytest.mark.parametrize("method", [m if m in WITH_STATE else pytest.param(m, marks=pytest.mark.slow) for m in METHODS])
def test_every_methods_own_state_is_restored(method: str, tmp_path: Path) -> None:
    """Queues, momentum encoders and centers: two short epochs, stopped in the middle of the second."""
    settings = (
        "digits",
        f"method.name={method}",
        *small_heads_as_text(method),
        "optim.epochs=2",
        "optim.lr=0.01",
        "data.val_fraction=0.88",
        "optim.batch_images=32",
        "run.log_every=1",
        "eval.linear=none",
    )
    train(tmp_path / "whole", *settings)
    assert train_until(4, tmp_path / "parts", *settings).code == RESUME_CODE
    train(tmp_path / "parts", *settings)
    assert_same_end(tmp_path / "parts", tmp_path / "whole")


def test_a_damaged_checkpoint_and_lines_beyond_it(whole: dict[int, Path], stopped: Path) -> None:
    content = (stopped / "checkpoint.pt").read_bytes()
    (stopped / "checkpoint.pt").write_bytes(content[: len(content) // 2])
    with (stopped / "metrics.jsonl").open("a") as file:
        file.write('{"step": 9, "loss": 0.5}\n{"step": 10, "lo')
    machine = ("run.checkpoint_seconds=60", "data.workers=0")  # settings that may change
    outcome = contune("train", *RUN, "run.log_every=1", *machine, *PLAIN, "--out", stopped)
    assert "damaged" in outcome.out
    assert_same_end(stopped, whole[1])


def test_lost_lines_are_reported(stopped: Path, whole: dict[int, Path]) -> None:
    lines = (stopped / "metrics.jsonl").read_text().splitlines(keepends=True)
    (stopped / "metrics.jsonl").write_text("".join(lines[:3]))
    outcome = contune("train", *RUN, "run.log_every=1", *PLAIN, "--out", stopped)
    assert "metrics.jsonl lacks lines" in outcome.out
    (stopped / "metrics.jsonl").write_text("".join(lines[:3]))
    outcome = contune("report", stopped, whole[1], "--out", stopped / "comparison.html")
    assert outcome.out.count("metrics.jsonl lacks lines") == 1


def test_the_checkpoint_of_another_run_is_refused(stopped: Path, tmp_path: Path) -> None:
    other, settings = tmp_path / "other", (*RUN, "run.log_every=1")
    assert train_until(3, other, *settings, "run.seed=1").code == RESUME_CODE
    shutil.copy(other / "checkpoint.pt", stopped / "checkpoint.pt")
    foreign = contune("train", *settings, *PLAIN, "--out", stopped)
    assert foreign.code == 2
    assert "run.seed" in foreign.err


def test_a_run_whose_data_have_changed_is_refused(tmp_path: Path) -> None:
    photos = write_classes(tmp_path / "photos")
    settings = [
        "images",
        f"data.path={photos}",
        "method.name=cross-entropy",
        "model.encoder=resnet-mini",
        "data.image_size=12",
        "optim.batch_images=8",
        "optim.balance=none",
        "optim.epochs=2",
    ]
    assert train_until(2, tmp_path / "run", *settings).code == RESUME_CODE
    shutil.copytree(photos / "class1", photos / "another")
    changed = contune("train", *settings, *PLAIN, "--out", tmp_path / "run")
    assert (changed.code, "other data" in changed.err) == (2, True)


def test_signals_that_are_put_off() -> None:
    """They wait for the end of the block, and excuse a RuntimeError after them; a second Ctrl-C does not wait."""
    done: list[object] = []

    def work(*events: signal.Signals | str) -> None:
        with stoppable(), put_off() as asked:
            for event in events:
                if isinstance(event, str):
                    raise RuntimeError(event)
                signal.raise_signal(event)
                done.append(asked())

    with pytest.raises(Stopped):
        work(signal.SIGTERM)
    with pytest.raises(Stopped):
        work(signal.SIGTERM, "a worker was terminated too")
    with pytest.raises(RuntimeError, match="of its own"):
        work("of its own")
    assert done == [True, True]
    with pytest.raises(KeyboardInterrupt):
        work(signal.SIGINT, signal.SIGINT)
    assert done == [True] * 3
    with pytest.raises(Stopped), stoppable():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert signal.getsignal(signal.SIGINT) == signal.default_int_handler
    signal.signal(signal.SIGTERM, lambda number, frame: done.append("theirs"))  # the handler of another program
    with stoppable():
        signal.raise_signal(signal.SIGTERM)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    assert done[-1] == "theirs"
