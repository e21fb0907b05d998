"""Several runs at a time: each as it would be alone, whatever happens to the others."""

import os
import signal
import sys
import threading
import time
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import PLAIN, START_METHOD, contune, read_json, read_lines, start, train
from safetensors.torch import load_file

from contune.config import Config
from contune.recipes import RECIPES
from contune.run import RunFolder
from contune.training import many
from contune.training.many import Job, default_parallel, run_many

SETTINGS = (
    "optim.epochs=2",
    "data.val_fraction=0.9",
    "optim.batch_images=16",
    "run.log_every=1",
    "run.checkpoint_seconds=0",
    "eval.linear=none",
    *PLAIN,
)


Results = tuple[list[Job], list[dict[str, Any]]]


def config(*overrides: str, recipe: str = "digits") -> Config:
    return RECIPES[recipe]().override([*SETTINGS, *overrides])


def makes_a_mistake(config: Config, folder: RunFolder) -> dict[str, Any]:
    raise TypeError("unsupported operand")


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """A good run, one that fails by a mistake that no rule foresees, and one whose folder is in use."""
    folder = tmp_path_factory.mktemp("many")
    (folder / "occupied").mkdir()
    (folder / "occupied" / "thesis.txt").write_text("precious")
    jobs = [
        Job(config("run.seed=1"), folder / "one", "seed 1"),
        Job(config("run.seed=3"), folder / "unusual", work=makes_a_mistake),
        Job(config(), folder / "occupied"),
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")  # as the tests themselves, so that numbers are equal to the last bit
        methods = iter(["spawn", START_METHOD])  # the run that fails need not import everything first
        patch.setattr(many, "get_context", lambda _: get_context(next(methods)))
        patch.setattr("sys.stderr", sys.__stderr__)  # pytest's would take the traceback of a fork
        return jobs, run_many(jobs, parallel=2)


def test_a_run_is_what_it_would_be_alone(outcome: Results, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs, results = outcome
    train(tmp_path / "alone", "digits", *SETTINGS, "run.seed=1")
    assert results[0] == read_json(jobs[0].folder / "result.json")
    assert "2 runs at a time" in results[0]["note"]
    assert read_lines(jobs[0].folder) == read_lines(tmp_path / "alone")
    ours, theirs = (load_file(folder / "encoder.safetensors") for folder in (jobs[0].folder, tmp_path / "alone"))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    monkeypatch.setattr(many, "_start", None)
    assert run_many(jobs[:1]) == results[:1], "a finished run is reused"


def test_a_failure_is_a_sentence_and_the_others_go_on(outcome: Results) -> None:
    jobs, results = outcome
    assert ["error" in result for result in results] == [False, True, True]
    assert results[1]["error"].startswith("its process failed: TypeError: unsupported operand")
    assert "Traceback" in results[1]["details"]
    assert "not empty" in results[2]["error"]
    assert [path.name for path in jobs[2].folder.iterdir()] == ["thesis.txt"]


def test_a_killed_process_is_a_sentence_too(tmp_path: Path) -> None:
    def kill() -> None:
        while not active_children():
            time.sleep(0.01)
        os.kill(active_children()[0].pid or 0, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    (result,) = run_many([Job(config(), tmp_path / "run")])
    killer.join()
    assert "SIGKILL" in result["error"]


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 75)])
def test_a_signal_stops_all_and_each_resumes(
    number: signal.Signals, code: int, outcome: Results, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    command = ("train", "digits", *SETTINGS, "--seeds", "1,2", "--parallel", "2", "--out", tmp_path)
    folders = [tmp_path / "seed1", tmp_path / "seed2"]
    with start(*command) as process:
        deadline = time.monotonic() + 120
        while not all((folder / "checkpoint.pt").exists() for folder in folders):
            assert process.poll() is None, "it ended before it could be stopped"
            assert time.monotonic() < deadline
            time.sleep(0.005)
        process.send_signal(number)
        printed, _ = process.communicate(timeout=60)
    assert process.returncode == code, printed
    lengths = [len(read_lines(folder)) for folder in folders]
    time.sleep(0.3)
    assert [len(read_lines(folder)) for folder in folders] == lengths, "no process survives"
    again = contune(*command)
    assert again.code == 0, again.err
    assert read_lines(folders[0]) == read_lines(outcome[0][0].folder)
    assert "mean" in again.out


def test_the_command_makes_a_job_of_each_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    seen: list[Job] = []

    def pretend(jobs: list[Job], parallel: int | None) -> list[dict[str, Any]]:
        seen.extend(jobs)
        return [{"error": "not run", "details": "the whole story"}] * len(jobs)

    monkeypatch.setattr(many, "run_many", pretend)
    outcome = contune("train", "digits", "--seeds", "0,5", "--debug")
    assert outcome.code == 2
    assert outcome.err == "".join(f"contune: seed {n}: not run\nthe whole story\n" for n in (0, 5))
    contune("train", "digits", "optim.lr=0.3", "--seeds", "0,5", "--out", "table")
    fingerprint = RECIPES["digits"]().override(["run.seed=5"]).fingerprint()
    assert [str(job.folder) for job in seen] == [
        "runs/digits",
        f"runs/digits-{fingerprint}",
        "table/seed0",
        "table/seed5",
    ]
    assert [job.config.run.seed for job in seen] == [0, 5, 0, 5]
    assert seen[3].config.optim.lr == 0.3


def test_how_many_runs_and_threads_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [Job(config(f"run.seed={seed}"), tmp_path / str(seed)) for seed in range(6)]
    for has_gpu, expected in ((True, 4), (False, 1)):
        monkeypatch.setattr(torch.cuda, "is_available", lambda has_gpu=has_gpu: has_gpu)
        assert default_parallel(jobs) == expected
        assert default_parallel([Job(config("run.device=cpu"), tmp_path)]) == 1
    assert default_parallel([Job(config("run.device=cuda:1"), tmp_path)] * 3) == 3
    monkeypatch.setattr(many, "available_cores", lambda: 12)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert [many.threads_of_each(num) for num in (1, 5, 100)] == [12, 2, 1]
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert [many.threads_of_each(num) for num in (1, 6)] == [3, 2]
