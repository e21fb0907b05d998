"""Several runs at a time: each as it would be alone, whatever becomes of the others."""

import os
import signal
import threading
import time
from multiprocessing import active_children
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import PLAIN, contune, read_json, read_lines, start, train
from safetensors.torch import load_file

from contune.config import Config
from contune.recipes import RECIPES
from contune.run import RunFolder
from contune.train import many
from contune.train.many import Job, default_parallel, run_many
from contune.train.summary import spread, summary

SETTINGS = ("optim.epochs=2", "run.log_every=1", "run.checkpoint_seconds=0", "eval.linear=none", *PLAIN)
STEPS = 2 * 14
REAL = Path(__file__).parent.parent.parent / "results" / "digits-tcl-resnet-mini-seed0.json"


def config(*overrides: str, recipe: str = "digits") -> Config:
    return RECIPES[recipe]().override([*SETTINGS, *overrides])


@pytest.fixture(scope="module")
def one_thread() -> Any:
    """As the tests themselves, so that numbers can be compared to the last bit."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        yield


def makes_a_mistake(config: Config, folder: RunFolder) -> dict[str, Any]:
    raise TypeError("unsupported operand")


@pytest.fixture(scope="module")
def outcome(one_thread: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Job], list[dict[str, Any]]]:
    """Two good runs among three that fail: no images, a mistake that no rule foresees, a folder in use."""
    folder = tmp_path_factory.mktemp("many")
    (folder / "occupied").mkdir()
    (folder / "occupied" / "thesis.txt").write_text("precious")
    jobs = [
        Job(config("run.seed=1"), folder / "one", "seed 1"),
        Job(config("data.path=nowhere", recipe="images"), folder / "missing"),
        Job(config("run.seed=3"), folder / "unusual", work=makes_a_mistake),
        Job(config(), folder / "occupied"),
        Job(config("run.seed=2"), folder / "two", "seed 2"),
    ]
    return jobs, run_many(jobs, parallel=2)


def hears_of_interruptions(config: Config, folder: RunFolder) -> dict[str, Any]:
    """Work of another process: whether Ctrl-C in the terminal would reach it."""
    folder.path.mkdir()
    folder.write_result(read_json(REAL) | {"heard": signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())})
    return {}


def test_a_run_is_stopped_by_the_process_that_started_it_and_by_no_key(tmp_path: Path) -> None:
    jobs = [Job(config(f"run.seed={seed}"), tmp_path / str(seed), work=hears_of_interruptions) for seed in (0, 1)]
    assert [run["heard"] for run in run_many(jobs, parallel=1)] == [False, False]
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_each_run_is_what_it_would_be_alone(outcome: tuple[list[Job], list[dict[str, Any]]], tmp_path: Path) -> None:
    jobs, results = outcome
    for number, seed in ((0, 1), (4, 2)):
        alone = tmp_path / str(seed)
        train(alone, "digits", *SETTINGS, f"run.seed={seed}")
        assert results[number] == read_json(jobs[number].folder / "result.json")
        assert results[number]["seed"] == seed
        assert read_lines(jobs[number].folder) == read_lines(alone)
        ours, theirs = (load_file(folder / "encoder.safetensors") for folder in (jobs[number].folder, alone))
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_a_shared_machine_is_noted(outcome: tuple[list[Job], list[dict[str, Any]]]) -> None:
    assert outcome[1][0]["note"] == "up to 2 runs at a time shared this machine"


def test_a_failure_is_a_sentence_and_the_others_go_on(outcome: tuple[list[Job], list[dict[str, Any]]]) -> None:
    jobs, results = outcome
    assert ["error" in result for result in results] == [False, True, True, True, False]
    missing, unusual, occupied = (result["error"] for result in results[1:4])
    assert missing.startswith("there is no file or folder at 'nowhere'")
    assert unusual.startswith("its process failed: TypeError: unsupported operand")
    assert "Traceback" in results[2]["details"]
    assert occupied.endswith("is not empty and holds no run; give another folder with --out")
    assert [path.name for path in jobs[3].folder.iterdir()] == ["thesis.txt"]
    assert not jobs[1].folder.exists()


def test_finished_runs_are_not_repeated(
    outcome: tuple[list[Job], list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs, results = outcome
    monkeypatch.setattr(many, "_Run", None)
    assert run_many([jobs[0], jobs[4]]) == [results[0], results[4]]


def test_a_process_that_is_killed_is_a_sentence_too(tmp_path: Path) -> None:
    def kill() -> None:
        while not active_children():
            time.sleep(0.01)
        os.kill(active_children()[0].pid or 0, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    (result,) = run_many([Job(config(), tmp_path / "run")])
    killer.join()
    assert result["error"] == (
        "its process was ended by SIGKILL; if the system ran out of memory, lower --parallel"
    )  # fmt: skip


@pytest.mark.slow
def test_ctrl_c_stops_all_and_each_goes_on(
    outcome: tuple[list[Job], list[dict[str, Any]]], tmp_path: Path, one_thread: None
) -> None:
    command = ("train", "digits", *SETTINGS, "--seeds", "1,2", "--parallel", "2", "--out", tmp_path)
    folders = [tmp_path / "seed1", tmp_path / "seed2"]
    with start(*command) as process:
        deadline = time.monotonic() + 120
        while not all((folder / "checkpoint.pt").exists() for folder in folders):
            assert process.poll() is None, "it ended before it could be stopped"
            assert time.monotonic() < deadline
            time.sleep(0.005)
        process.send_signal(signal.SIGINT)
        printed, _ = process.communicate(timeout=60)
    assert process.returncode == 130, printed
    assert "stopped; the same command goes on from the last checkpoint of each run" in printed
    lengths = [len(read_lines(folder)) for folder in folders]
    assert min(lengths) < STEPS
    time.sleep(0.3)
    assert [len(read_lines(folder)) for folder in folders] == lengths, "nobody goes on in secret"

    again = contune(*command)
    assert again.code == 0, again.err
    for folder, (job, result) in zip(folders, [(outcome[0][n], outcome[1][n]) for n in (0, 4)], strict=True):
        assert read_lines(folder) == read_lines(job.folder)
        assert f"{result['knn_top1']:.2f}" in again.out
    assert "mean ± s.d. of 2 seeds" in again.out


def test_folders_are_named_as_single_runs_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
        "runs/digits", f"runs/digits-{fingerprint}", "table/seed0", "table/seed5",
    ]  # fmt: skip
    assert [job.config.run.seed for job in seen] == [0, 5, 0, 5]
    assert seen[3].config.optim.lr == 0.3


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--parallel", "2"), "--parallel 2 is for several runs at a time; name their seeds"),
        (("--seeds", "0,1,0"), "two runs are to go to runs/digits; name each once"),
        (("--seeds", "0,1", "--parallel", "0"), "0 runs at a time would never end; take 1 or more"),
        (("--seeds", "0,one"), "'0,one' is not a list of whole numbers"),
        (("--seeds", "0,-1"), "run.seed must be 0 or more, got -1"),
        (("run.seed=1", "--seeds", "0,1"), "--seeds and run.seed both name seeds; leave one of them out"),
    ],
)
def test_what_is_refused(
    arguments: tuple[str, ...], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = contune("train", *arguments)
    assert outcome.code == 2
    assert outcome.err.startswith(f"contune: {sentence}")
    assert list(tmp_path.iterdir()) == []


def test_help_has_an_example_of_it() -> None:
    assert "--seeds 0,1,2" in " ".join(contune("train", "--help").out.split())


def test_torchrun_and_seeds_are_two_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    outcome = contune("train", "--seeds", "0,1")
    assert (outcome.code, "leave torchrun out" in outcome.err) == (2, True)


def test_how_many_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [Job(config(f"run.seed={seed}"), tmp_path / str(seed)) for seed in range(6)]
    for has_gpu, expected in ((True, 4), (False, 1)):
        monkeypatch.setattr(torch.cuda, "is_available", lambda has_gpu=has_gpu: has_gpu)
        assert default_parallel(jobs) == expected
        assert default_parallel([Job(config("run.device=cpu"), tmp_path)]) == 1
    assert default_parallel([Job(config("run.device=cuda:1"), tmp_path)] * 3) == 3


def test_threads_and_workers_are_shared_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many, "available_cores", lambda: 12)
    monkeypatch.setattr(many, "default_workers", lambda: 12)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    shares = [many._Share.of(num) for num in (0, 1, 5, 100)]
    assert [(share.threads, share.workers) for share in shares] == [(12, 12), (12, 12), (2, 2), (1, 1)]
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert [many._Share.of(num).threads for num in (1, 6)] == [3, 2]


def test_seeds_of_one_setting_are_summed_up_together(tmp_path: Path) -> None:
    jobs = [
        Job(config("run.seed=0"), tmp_path / "a", "seed 0"),
        Job(config("run.seed=1"), tmp_path / "b", "seed 1"),
        Job(config("method.k1=9"), tmp_path / "c"),
        Job(config("run.seed=2"), tmp_path / "d"),
    ]
    results: list[dict[str, Any]] = [
        {"linear_top1": 90.0, "knn_top1": 80.0}, {"linear_top1": 92.0, "knn_top1": None}, {"knn_top1": 70.0},
        {"error": "no", "details": ""},
    ]  # fmt: skip
    assert summary(jobs, results) == [
        ("seed 0", "90.00", "80.00", str(tmp_path / "a")),
        ("seed 1", "92.00", "", str(tmp_path / "b")),
        ("c", "", "70.00", str(tmp_path / "c")),
        ("mean ± s.d. of 2 seeds", "91.00 ± 1.41", "", ""),
    ]
    assert spread([1.0, 2.0, 3.0]) == "2.00 ± 1.00"
    assert spread([1.0]) == ""
