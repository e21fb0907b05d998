"""SIGTERM and Ctrl-C: the step is finished and saved, and the run, started again, ends as if nothing had been."""

import signal
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import PLAIN, Outcome, contune, last_line, read_json, read_lines, start, train
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import Tensor

from contune.train import signals
from contune.train.signals import RESUME_CODE, Stopped, put_off, stoppable
from contune.train.trainer import Trainer

RUN = ("digits", "optim.epochs=3", "data.val_fraction=0.6", "eval.linear=none", "eval.online=true")
STEPS = 3 * 5
SENTENCE = "contune: stopped by SIGTERM; the same command goes on from the last checkpoint"


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
        return contune("train", *RUN, *arguments, *PLAIN, "--out", folder)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Uninterrupted runs, by their `run.log_every`."""
    folders = {every: tmp_path_factory.mktemp("whole") / "run" for every in (1, 4, 100)}
    for every, folder in folders.items():
        train(folder, *RUN, f"run.log_every={every}")
    return folders


def assert_stopped_and_resumed(stops: Iterable[int], every: int, folder: Path, whole: Path) -> None:
    log_every = f"run.log_every={every}"
    for step in sorted(stops):
        outcome = train_until(step, folder, log_every)
        assert (outcome.code, last_line(outcome.err)) == (RESUME_CODE, SENTENCE)
        assert torch.load(folder / "checkpoint.pt")["step"] == step
        assert [line["step"] for line in read_lines(folder)][-1:] in ([], [step // every * every], [step])
    train(folder, *RUN, log_every)
    weights, expected = (load_file(path / "encoder.safetensors") for path in (folder, whole))
    assert all(torch.equal(weights[name], expected[name]) for name in expected)
    assert read_lines(folder) == read_lines(whole)
    assert read_json(folder / "result.json")["measures"] == read_json(whole / "result.json")["measures"]


@pytest.mark.parametrize(("stops", "every"), [((3, 8, 9), 4), ((1, STEPS - 1), 100), ((5,), 1)])
def test_weights_and_lines_are_those_of_a_whole_run(
    stops: tuple[int, ...], every: int, whole: dict[int, Path], tmp_path: Path
) -> None:
    """In mid-epoch, at its end, between log points and on them; also twice in a row."""
    assert_stopped_and_resumed(stops, every, tmp_path / "run", whole[every])


def test_ctrl_c_saves_too(whole: dict[int, Path], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    outcome = train_until(3, folder, "run.log_every=4", by=signal.SIGINT)
    assert (outcome.code, last_line(outcome.out)) == (
        130, f"stopped; the same command goes on from {folder / 'checkpoint.pt'}"
    )  # fmt: skip
    assert torch.load(folder / "checkpoint.pt")["step"] == 3
    train(folder, *RUN, "run.log_every=4")
    assert read_lines(folder) == read_lines(whole[4])


def test_ctrl_c_before_there_is_anything_to_save_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("contune.train.session.open_setup", lambda config: signal.raise_signal(signal.SIGINT))
    outcome = contune("train", *RUN, *PLAIN, "--out", tmp_path / "run")
    assert (outcome.code, last_line(outcome.out)) == (130, "stopped; the same command starts again")


def test_a_second_ctrl_c_does_not_wait() -> None:
    done: list[str] = []

    def work() -> None:
        with stoppable(), put_off():
            signal.raise_signal(signal.SIGINT)
            done.append("the step")
            signal.raise_signal(signal.SIGINT)
            done.append("more")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["the step"]
    assert signal.getsignal(signal.SIGINT) == signal.default_int_handler


@pytest.mark.slow
@settings(max_examples=25)
@given(stops=st.sets(st.integers(1, STEPS - 1), min_size=1, max_size=4), every=st.sampled_from([1, 4, 100]))
def test_the_same_whatever_the_steps(
    stops: set[int], every: int, whole: dict[int, Path], tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert_stopped_and_resumed(stops, every, tmp_path_factory.mktemp("run") / "run", whole[every])


def test_sigterm_while_the_last_step_is_saved_stops_before_the_measuring(tmp_path: Path) -> None:
    outcome = train_until(STEPS, tmp_path / "run")
    assert (outcome.code, last_line(outcome.err)) == (RESUME_CODE, SENTENCE)
    assert not (tmp_path / "run" / "encoder.safetensors").exists()


def test_a_process_of_its_own(whole: dict[int, Path], tmp_path: Path) -> None:
    """From outside, at whatever moment: every ending is one of three, and the run goes on from it."""
    folder, log_every = tmp_path / "run", "run.log_every=1"
    with start("train", *RUN, log_every, "run.checkpoint_seconds=0", *PLAIN, "--out", folder) as process:
        deadline = time.monotonic() + 120
        while not (folder / "checkpoint.pt").exists():
            assert process.poll() is None, "it ended before it could be stopped"
            assert time.monotonic() < deadline
            time.sleep(0.005)
        process.send_signal(signal.SIGTERM)
        printed, _ = process.communicate(timeout=60)
    assert process.returncode == RESUME_CODE, printed
    assert last_line(printed) == SENTENCE
    assert "Traceback" not in printed
    train(folder, *RUN, log_every)
    assert read_lines(folder) == read_lines(whole[1])


def test_before_the_first_step_there_is_nothing_to_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("contune.train.session.open_setup", lambda config: signal.raise_signal(signal.SIGTERM))
    outcome = contune("train", *RUN, *PLAIN, "--out", tmp_path / "run")
    assert (outcome.code, last_line(outcome.err)) == (RESUME_CODE, SENTENCE)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_several_runs_save_and_end_with_the_one_that_started_them(tmp_path: Path) -> None:
    settings = (*RUN, "run.log_every=1", "run.checkpoint_seconds=0", *PLAIN)
    folders = [tmp_path / "seed1", tmp_path / "seed2"]
    with start("train", *settings, "--seeds", "1,2", "--parallel", "2", "--out", tmp_path) as process:
        deadline = time.monotonic() + 120
        while not all((folder / "checkpoint.pt").exists() for folder in folders):
            assert process.poll() is None, "it ended before it could be stopped"
            assert time.monotonic() < deadline
            time.sleep(0.005)
        process.send_signal(signal.SIGTERM)
        printed, _ = process.communicate(timeout=60)
    assert process.returncode == RESUME_CODE, printed
    assert last_line(printed) == SENTENCE
    for folder in folders:
        saved = torch.load(folder / "checkpoint.pt")["step"]
        assert saved == len(read_lines(folder)), "the step that was logged last is the one that was saved"
    time.sleep(0.3)
    assert [len(read_lines(folder)) for folder in folders] == [
        torch.load(folder / "checkpoint.pt")["step"] for folder in folders
    ], "nobody goes on in secret"


def test_where_nothing_is_put_off_it_is_raised_at_once() -> None:
    with pytest.raises(Stopped), stoppable():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_put_off_it_waits_for_the_end_and_excuses_what_fails_meanwhile() -> None:
    noted = []

    def work(failure: str) -> None:
        with put_off() as asked:
            noted.append(asked())
            if failure != "of its own":
                signal.raise_signal(signal.SIGTERM)
            if failure:
                raise RuntimeError(failure)
            noted.append(asked())

    with pytest.raises(Stopped), stoppable():
        work("")
    assert noted == [False, True]
    with pytest.raises(Stopped), stoppable():
        work("a worker was terminated too")
    with pytest.raises(RuntimeError, match="of its own"), stoppable():
        work("of its own")


def test_a_handler_of_somebody_else_stays() -> None:
    called: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: called.append(number))
    try:
        with stoppable():
            signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    assert called == [signal.SIGTERM]
