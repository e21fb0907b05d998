"""Doing an experiment: which runs there are, which are missing, and where they go."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_line import PLAIN, contune, read_json
from made_up import made_up_outcome, made_up_result, write_run

from contune.errors import UserError
from contune.experiments import EXPERIMENTS, Experiment, Outcome, find_experiment, plan
from contune.experiments.plan import ABOUT, PlanRow, collect, read_results, save
from contune.run import RunFolder
from contune.training import many
from contune.training.signals import Stopped

RESULTS = Path(__file__).parent.parent.parent / "results"
TINY = ("optim.epochs=1", "data.val_fraction=0.85", "run.log_every=1", "eval.knn_k=5", *PLAIN)
DRAWN = {"table.md", "figure.png", "figure.svg", ABOUT}
SIMCLR = PlanRow(title="SimCLR", recipe="digits-simclr", overrides=("method.projector_hidden=32",))
RANDOM = PlanRow(title="Random", recipe="digits-simclr", overrides=("optim.epochs=0",), is_baseline=True)
RAW = PlanRow(title="Raw", recipe="digits-simclr", overrides=RANDOM.overrides, pixels=True, is_baseline=True)
BROKEN = PlanRow(title="Broken", recipe="digits-simclr", overrides=("optim.batch_images=500",))
SMALL = Experiment(title="A small one", summary="", name="small", rows=(SIMCLR, RANDOM, RAW))
K1 = find_experiment("fig-k1-digits")


@pytest.fixture
def no_runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Instead of running, every job fails; the names of the jobs."""
    asked: list[str] = []

    def pretend(jobs: Sequence[many.Job], parallel: int | None) -> list[dict[str, Any]]:
        asked.extend(job.folder.name for job in jobs)
        return [{"error": "not today"} for _ in jobs]

    monkeypatch.setattr(plan, "run_many", pretend)
    return asked


def seeds_of(outcomes: Sequence[Outcome]) -> list[list[int]]:
    return [[result["seed"] for result in outcome.results] for outcome in outcomes]


def in_this_process(jobs: Sequence[many.Job], parallel: int | None) -> list[dict[str, Any]]:
    """Like `run_many`, whose processes tests/training/test_many.py tests."""
    results: list[dict[str, Any]] = []
    for job in jobs:
        try:
            results.append(job.work(job.config, RunFolder(job.folder)))
        except UserError as error:
            results.append({"error": str(error), "details": ""})
    return results


def test_a_real_experiment_leaves_runs_a_table_and_a_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """End to end; one run fails, and the others are not lost."""
    monkeypatch.setattr(plan, "run_many", in_this_process)
    pixels = replace(SIMCLR, title="Raw pixels", pixels=True, is_baseline=True)  # of the same run
    monkeypatch.setitem(EXPERIMENTS, "small", Experiment(title="T", summary="", rows=(SIMCLR, BROKEN, pixels)))
    folder = tmp_path / "small"
    done = contune("experiment", "small", *TINY, "--out", folder, "--save", tmp_path / "saved")
    assert done.code == 2, "one failed"
    assert f"results  {tmp_path}/saved: 1 new" in done.out
    assert {path.name for path in folder.iterdir()} == {*DRAWN, "simclr-seed0"}
    rows = (folder / "table.md").read_text().splitlines()[4:]
    result = read_json(folder / "simclr-seed0" / "result.json")
    assert rows[0].startswith(f"| SimCLR | **{result['linear_top1']:.2f}** |")
    assert "failed" in rows[1]
    assert rows[2].startswith("| Raw pixels | ")
    assert "Broken, seed 0: optim.batch_images=500" in (folder / "table.md").read_text()
    monkeypatch.setattr(plan, "run_many", lambda jobs, parallel: [*jobs] and 1 / 0)  # nothing may be run from here on
    monkeypatch.setitem(EXPERIMENTS, "small", Experiment(title="T", summary="", rows=(SIMCLR, pixels)))
    again = contune("experiment", "small", *TINY, "--out", folder)
    assert again.code == 0, again.err
    saved = contune("experiment", "small", "--from", tmp_path / "saved", "--draw", "--out", tmp_path / "drawn")
    assert saved.code == 0, saved.err
    assert f"{result['linear_top1']:.2f}" in saved.out
    assert {path.name for path in (tmp_path / "drawn").iterdir()} == DRAWN


SAVED = sorted(path.parent for path in RESULTS.glob(f"*/{ABOUT}"))


@pytest.mark.parametrize("name", ["fig-k1", "table1-digits", "ci-digits"])
def test_results_are_drawn_with_their_own_settings(name: str, tmp_path: Path) -> None:
    """One of each kind of figure."""
    done = contune("experiment", name, "--from", RESULTS, "--draw", "--out", tmp_path / "out")
    assert done.code == 0, done.err
    assert "not run yet" not in done.out
    assert {path.name for path in (tmp_path / "out").iterdir()} == DRAWN
    assert read_json(tmp_path / "out" / ABOUT) == read_json(RESULTS / name / ABOUT)


@pytest.mark.parametrize("folder", SAVED, ids=lambda folder: folder.name)
def test_every_folder_of_results_is_that_of_its_experiment(folder: Path) -> None:
    about = read_json(folder / ABOUT)
    outcomes = collect(find_experiment(about["experiment"], about["overrides"]), read_results(RESULTS))
    shown = {Path(result["file"]) for outcome in outcomes for result in outcome.results}
    assert {*folder.glob("*-seed*.json")} <= shown, "a recipe was changed, and its result was not"


def test_only_missing_runs_are_done_and_only_new_ones_saved(
    tmp_path: Path, no_runs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    some = [made_up_outcome(row, 90.0 + n, overrides=K1.overrides) for n, row in enumerate(K1.rows[:4])]
    save(K1, some, Path("all", "some"), Path())
    out, source, new = Path("all", "out"), Path("all", "some"), Path("all", "fig-k1-digits")
    write_run(out, K1.rows[4], overrides=K1.overrides, linear=77.0)
    plan.write_about(out, K1)
    done = contune("experiment", K1.name, "--from", source, "--out", out, "--save", new)
    assert done.code == 2, "the last run failed"
    assert no_runs == ["tcl-k1-5000-seed0"]
    assert "93.00" in done.out
    drawn = contune("experiment", K1.name, "--from", source, "--out", out, "--draw", "--save", new)
    assert "77.00" in drawn.out
    assert {path.name for path in new.iterdir()} == {ABOUT, "tcl-k1-2000-seed0.json"}


@pytest.mark.parametrize("end", [KeyboardInterrupt, Stopped])
def test_a_stop_draws_what_there_is(end: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object) -> None:
        raise end

    monkeypatch.setattr(plan, "run_many", stop)
    monkeypatch.setitem(EXPERIMENTS, "small", SMALL)
    write_run(tmp_path, SIMCLR, linear=95.5)
    plan.write_about(tmp_path, SMALL)
    contune("experiment", "small", "--out", tmp_path, "--save", tmp_path / "saved")
    assert all(text in (tmp_path / "table.md").read_text() for text in ("95.50", "not run yet"))
    assert {path.name for path in (tmp_path / "saved").iterdir()} == {ABOUT, "simclr-seed0.json"}


def test_runs_are_done_seed_by_seed_and_shared_by_rows_of_one_name(tmp_path: Path, no_runs: list[str]) -> None:
    write_run(tmp_path / "done", SIMCLR, seed=4)
    plan.run_missing(SMALL, tmp_path / "new", [0, 4], read_results(tmp_path / "done"), None)
    assert no_runs == ["simclr-seed0", "random-seed0", "random-seed4"]


def test_data_that_is_not_on_this_disk_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_runs: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CONTUNE_DATA", raising=False)
    far = PlanRow(title="Far", recipe="cifar10-supcon")
    both = Experiment(title="", summary="", rows=(SIMCLR, far))
    shown, errors = plan.run_missing(both, tmp_path / "a", [0], {}, None)
    assert no_runs == ["simclr-seed0"]
    assert shown.rows == (SIMCLR,)
    assert list(errors.values()) == ["not today"]
    with pytest.raises(UserError, match="cifar10"):
        plan.run_missing(Experiment(title="", summary="", rows=(far,)), tmp_path / "b", [0], {}, None)
    assert not (tmp_path / "b").exists()


def test_results_go_to_the_rows_whose_settings_they_have(tmp_path: Path) -> None:
    results = [made_up_result(row, seed) for row in (SIMCLR, RANDOM) for seed in (3, 1)]
    elsewhere = made_up_result(SIMCLR, 2)
    elsewhere["config"]["data"]["path"], elsewhere["config"]["run"]["device"] = "there", "cuda"
    stranger, future = made_up_result(SIMCLR, 0, overrides=("optim.lr=0.9",)), made_up_result(SIMCLR, 7)
    future["config"]["data"]["from_the_future"] = 1
    repeated, copied = made_up_result(SIMCLR, 1, linear=91.0), made_up_result(SIMCLR, 1, note="a copy")
    for number, result in enumerate([*results, elsewhere, stranger, future, repeated, copied]):
        (tmp_path / f"{number}.json").write_text(json.dumps(result))
    found = read_results(tmp_path)
    assert seeds_of(collect(SMALL, found)) == [[1, 1, 2, 3], [1, 3], [1, 3]], "no copies"
    assert seeds_of(collect(SMALL.changed(["optim.lr=0.9"]), found))[0] == [0]


def test_damaged_failed_and_missing_runs_do_not_count(tmp_path: Path) -> None:
    for seed in range(4):
        write_run(tmp_path, SIMCLR, seed=seed)
    damaged = tmp_path / "simclr-seed1" / "result.json"
    damaged.write_text(damaged.read_text()[:50])
    (tmp_path / "simclr-seed2" / "result.json").unlink()
    (tmp_path / "simclr-seed3" / "result.json").unlink()
    errors = {SIMCLR.config((), seed).fingerprint(): reason for seed, reason in ((1, "broken"), (2, "full"))}
    outcome, random, _ = collect(SMALL, read_results(tmp_path), seeds=[0, 1, 2, 3], errors=errors)
    assert seeds_of([outcome]) == [[0]]
    assert list(outcome.failures) == ["seed 1: broken.", "seed 2: full."]
    assert (outcome.num_missing, random.num_missing) == (1, 4)
    assert outcome.remark() == "2 of 4 failed, 1 of 4 not run yet"


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("ssl-digit",), "ssl-digits"),
        (("ci-digits", "--from", "nowhere"), "not a folder"),
        (("ssl-digits", "optim.epoch=3"), "optim.epochs"),
        (("ssl-digits", "epochs"), "KEY=VALUE"),
        (("ssl-digits", "--seeds", "0"), "--seeds"),
        (("ssl-digits", "--seeds", "20261116"), "--seeds"),
        (("ssl-digits", "--parallel", "0"), "parallel"),
        (("ssl-digits", "--draw"), "no finished run"),
        (("ssl-digits", "run.seed=3"), "run.seed"),
        (("fig-batch", "optim.lr=5"), "differ"),
        (("fig-k1-digits", "method.k1=5"), "method.k1"),
        (("optim.epochs=3",), "unknown experiment"),
        (("ci-digits", "--out", "file"), "is a file"),
        (("ci-digits", "--out", "full"), "not empty"),
        (("ci-digits", "optim.lr=3", "--out", "other"), "holds the experiment"),
    ],
)
def test_bad_input(
    arguments: tuple[str, ...], word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_runs: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    plan.write_about(tmp_path / "other", find_experiment("ci-digits"))
    (tmp_path / "file").write_text("")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("years of work")
    before = sorted(tmp_path.rglob("*"))
    done = contune("experiment", *arguments)
    assert done.code == 2
    assert word in done.err
    assert sorted(tmp_path.rglob("*")) == before
    assert no_runs == []


def test_without_a_name_the_experiments_are_listed() -> None:
    done = contune("experiment")
    assert done.code == 0
    assert all(name in done.out for name in EXPERIMENTS)
