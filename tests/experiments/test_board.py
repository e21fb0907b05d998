"""Doing an experiment: real runs, small ones; what is done is not done again."""

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from command_line import PLAIN, contune, read_json, start
from made_up import made_up_result, write_run
from PIL import Image

from contune.errors import UserError
from contune.experiments import EXPERIMENTS, board, find_experiment, place
from contune.experiments.experiment import Experiment
from contune.experiments.gather import from_folder, from_results
from contune.experiments.grid import grid
from contune.experiments.outcome import Outcome
from contune.experiments.place import ABOUT
from contune.experiments.plan import PIXELS, Row, point
from contune.experiments.saved import read_saved, saved_folders
from contune.train import many
from contune.train.signals import Stopped

RESULTS = Path(__file__).parent.parent.parent / "results"
TINY = ("optim.epochs=1", "data.val_fraction=0.85", "run.log_every=1", "eval.knn_k=5", *PLAIN)
FILES = {"table.md", "table.tex", "table.html", "figure.png", "figure.svg"}
SIMCLR = Row(title="SimCLR", recipe="digits-simclr", overrides=("method.projector_hidden=32",), name="simclr")
RANDOM = Row(title="Random", recipe="digits-simclr", overrides=("optim.epochs=0",), name="random", is_baseline=True)
RAW = Row(
    title="Raw pixels", recipe="digits-simclr", overrides=("optim.epochs=0",), name="random", measured=PIXELS,
    is_baseline=True,
)  # fmt: skip
BROKEN = Row(title="Broken", recipe="digits-simclr", overrides=("optim.batch_images=500",), name="broken")
SMALL = Experiment(title="A small one", name="small", rows=(SIMCLR, RANDOM, RAW))


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An experiment of real runs, one of which fails."""
    folder = tmp_path_factory.mktemp("experiments") / "small"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setitem(EXPERIMENTS, "small", lambda: Experiment(title="A small one", rows=(SIMCLR, BROKEN, RANDOM, RAW)))
        outcome = contune("experiment", "small", *TINY, "--out", folder)
    assert outcome.code == 2, "one failed"
    assert f"table    {folder}/table.md" in outcome.out
    return folder


def test_it_leaves_runs_tables_and_a_figure(done: Path) -> None:
    assert {path.name for path in done.iterdir()} == {*FILES, ABOUT, "simclr-seed0", "random-seed0"}
    rows = (done / "table.md").read_text().splitlines()[4:]
    result = read_json(done / "simclr-seed0" / "result.json")
    assert rows[0].startswith(f"| SimCLR | **{result['linear_top1']:.2f}** |")
    assert f"**{result['knn_top1']:.2f}**" in rows[0]
    assert "| failed |" in rows[1]
    assert rows[2].startswith("| Random | ")
    assert rows[3].startswith("| Raw pixels | ")
    assert "Broken, seed 0: optim.batch_images=500 is more than the" in (done / "table.md").read_text()
    assert "A small one" in (done / "table.html").read_text()
    with Image.open(done / "figure.png") as picture:
        assert picture.width > 1000


def test_the_end_of_training_is_in_the_result(done: Path) -> None:
    logged = read_json(done / "simclr-seed0" / "result.json")["last_logged"]
    assert {"loss", "effective_rank", "alignment", "uniformity"} <= logged.keys()
    assert not {"step", "lr", "views_per_second"} & logged.keys()
    assert read_json(done / "random-seed0" / "result.json")["last_logged"] == {}


def test_what_is_done_is_not_done_again(done: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many, "_Run", None)
    outcomes = board.run(SMALL.changed(TINY), seeds=[0], folder=done)
    assert [outcome.results for outcome in outcomes] == [
        (read_json(done / name / "result.json"),) for name in ("simclr-seed0", "random-seed0", "random-seed0")
    ]
    assert "Broken" not in (done / "table.md").read_text(), "it is drawn again"


def test_another_run_in_a_folder_is_not_taken_for_it(done: Path) -> None:
    (outcome, *_) = from_folder(SMALL.rows, [*TINY, "optim.lr=0.7"], [0], done)
    assert outcome.results == ()
    assert "holds a run with another optim.lr" in outcome.failures[0]


def test_what_cannot_be_read_is_said_and_the_rest_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many, "_Run", None)
    monkeypatch.setitem(EXPERIMENTS, "small", lambda: Experiment(title="A small one", rows=(SIMCLR, RANDOM)))
    for seed in range(3):
        write_run(tmp_path / "out", SIMCLR, seed=seed, linear=95.5)
        write_run(tmp_path / "out", RANDOM, seed=seed, linear=50.0)
    damaged, older = tmp_path / "out" / "simclr-seed1" / "result.json", tmp_path / "out" / "simclr-seed2/config.json"
    damaged.write_text(damaged.read_text()[:50])
    older.write_text(older.read_text().replace('"momentum"', '"momentumm"'))
    for words in (("--draw",), ()):
        outcome = contune("experiment", "small", "--seeds", "3", "--out", tmp_path / "out", *words)
        assert outcome.code == 2
        assert "50.00" in outcome.out
        assert "2 of 3 failed" in outcome.out
        told = " ".join(outcome.out.split())
        assert "SimCLR, seed 1:" in told
        assert "is not a result that contune wrote; remove it to measure the run again." in told
        assert "SimCLR, seed 2:" in told
        assert "did you mean optim.momentum? SimCLR" not in told
        assert "?." not in told


def test_draw_runs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many, "_Run", None)
    monkeypatch.setitem(EXPERIMENTS, "small", lambda: SMALL)
    write_run(tmp_path, SIMCLR, linear=95.5)
    outcome = contune("experiment", "small", "--draw", "--seeds", "2", "--out", tmp_path)
    assert outcome.code == 0, outcome.err
    assert "95.50" in outcome.out
    assert "1 of 2 not run yet" in outcome.out
    assert {path.name for path in tmp_path.iterdir()} == {*FILES, ABOUT, "simclr-seed0"}


def test_results_from_anywhere_go_to_the_rows_whose_settings_they_have() -> None:
    results = [made_up_result(row, seed) for row in (SIMCLR, RANDOM) for seed in (3, 1)]
    elsewhere = made_up_result(SIMCLR, 2)
    elsewhere["config"]["data"]["path"] = None
    elsewhere["config"]["run"]["device"] = "cuda"
    stranger = made_up_result(SIMCLR, 0, overrides=("optim.lr=0.9",))
    outcomes = from_results(SMALL.rows, [*results, elsewhere, stranger])
    assert [[result["seed"] for result in outcome.results] for outcome in outcomes] == [[1, 2, 3], [1, 3], [1, 3]]
    (again, *_) = from_results(SMALL.rows, [stranger], ["optim.lr=0.9"])
    assert [result["seed"] for result in again.results] == [0]
    with pytest.raises(UserError, match="none of these results has the settings of this experiment"):
        from_results(SMALL.rows, [stranger])


@pytest.mark.parametrize("folder", saved_folders(RESULTS), ids=lambda folder: folder.name)
def test_the_committed_results_are_those_of_the_experiment(folder: Path, tmp_path: Path) -> None:
    experiment, outcomes = read_saved(folder)
    kept = {path.stem for path in folder.glob("*-seed*.json")}
    shown = {outcome.row.folder(result["seed"]) for outcome in outcomes for result in outcome.results}
    assert shown, folder
    assert kept <= shown, "a recipe was changed, and its result was not"
    board.draw(experiment, outcomes, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == FILES


def test_ctrl_c_draws_what_there_is_and_the_same_command_goes_on(tmp_path: Path) -> None:
    command = ("experiment", "ssl-digits", *TINY, "--out", tmp_path)
    first = tmp_path / "byol-seed0" / "result.json"
    with start(*command) as process:
        deadline = time.monotonic() + 120
        while not first.exists():
            assert process.poll() is None, "it ended before it could be stopped"
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        printed, _ = process.communicate(timeout=60)
    assert process.returncode == 130, printed
    assert f"stopped; the same command goes on, and what is done is drawn in {tmp_path}" in printed
    table = (tmp_path / "table.md").read_text()
    assert f"{json.loads(first.read_text())['knn_top1']:.2f}" in table
    assert "not run yet" in table


@pytest.mark.parametrize("end", [KeyboardInterrupt, Stopped])
def test_whatever_stops_it_what_there_is_is_drawn(
    end: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(jobs: list[many.Job], parallel: int | None) -> list[dict[str, Any]]:
        raise end

    monkeypatch.setattr(board, "run_many", stopped)
    write_run(tmp_path, SIMCLR, linear=95.5)
    with pytest.raises(end):
        board.run(SMALL, seeds=[0], folder=tmp_path)
    assert "95.50" in (tmp_path / "table.md").read_text()
    assert "not run yet" in (tmp_path / "table.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("ssl-digit",), "unknown experiment 'ssl-digit'; did you mean ssl-digits"),
        (("table-9",), "unknown experiment 'table-9'; did you mean table1"),
        (("nothing",), "unknown experiment 'nothing'; choose from ci, ci-digits, fig-augment"),
        (("ci-digits", "--from", "nowhere"), "nowhere is not a folder; give one that holds result files or runs"),
        (("ssl-digits", "optim.epoch=3"), "unknown setting 'optim.epoch'; did you mean optim.epochs"),
        (("ssl-digits", "epochs"), "'epochs' is not KEY=VALUE"),
        (("ssl-digits", "--seeds", "0"), "--seeds 0 names no seed; write how many, such as 3, or which, such as 0,4"),
        (
            ("ssl-digits", "--seeds", "20261116"),
            "--seeds 20261116 would be 20,261,116 runs of each; write how many, up to 1000, or which, such as 0,4 or "
            "20261116,",
        ),
        (("ssl-digits", "--seeds", "some"), "'some' is not a list of whole numbers; write for example 0,1,2"),
        (("ssl-digits", "--parallel", "0"), "0 runs at a time would never end"),
        (("ssl-digits", "--draw"), "runs/experiments/ssl-digits has no finished run of ssl-digits to draw"),
        (("ssl-digits", "--draw", "run.seed=3"), "run.seed would be the same for all runs"),
        (("fig-k1-digits", "method.k1=5"), "method.k1 is what the runs of this experiment differ in"),
        (("optim.epochs=3",), "name an experiment first, such as ci-digits"),
        (("--draw",), "name an experiment first, such as ci-digits"),
    ],
)
def test_what_is_refused(
    arguments: tuple[str, ...], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = contune("experiment", *arguments)
    assert outcome.code == 2
    assert outcome.err.startswith(f"contune: {sentence}")
    assert list(tmp_path.iterdir()) == []


def test_nothing_of_another_experiment_is_written_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many, "_Run", None)
    folder = tmp_path / "out"
    place.mark(folder, "ci-digits", ["optim.epochs=2"])
    (tmp_path / "file").write_text("")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "config.json").write_text("{}")
    holds = f"contune: {folder} holds the experiment ci-digits optim.epochs=2; give another folder with --out"
    for words, sentence in (
        (("ssl-digits", "--out", folder), holds),
        (("ssl-digits", "--draw", "--out", folder), holds),
        (("ci-digits", "--draw", "--out", folder), holds),
        (("ci-digits", "--out", tmp_path / "file"), f"contune: {tmp_path}/file is a file; give a folder with --out"),
        (("ci-digits", "--out", tmp_path / "file" / "below"), f"contune: cannot write to {tmp_path}/file/below"),
        (("ci-digits", "--out", tmp_path / "full"), f"contune: {tmp_path}/full is not empty and holds no run of this"),
    ):
        outcome = contune("experiment", *words)
        assert outcome.code == 2
        assert outcome.err.startswith(sentence), outcome.err
    assert [path.name for path in folder.iterdir()] == [ABOUT]


def test_seeds_are_a_number_or_a_list(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: list[list[int]] = []

    def pretend(experiment: Experiment, *, seeds: list[int], **how: Any) -> list[Outcome]:
        seen.append(seeds)
        return []

    monkeypatch.setattr(board, "run", pretend)
    for text in ("3", "0,4", "7,"):
        contune("experiment", "ssl-digits", "--seeds", text, "--out", tmp_path)
    assert seen == [[0, 1, 2], [0, 4], [7]]


def test_without_a_name_they_are_listed() -> None:
    outcome = contune("experiment")
    assert outcome.code == 0
    assert all(name in outcome.out for name in EXPERIMENTS)
    assert "contune experiment ssl-digits --seeds 3" in " ".join(contune("experiment", "--help").out.split())


def test_data_that_is_not_on_this_disk_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CONTUNE_DATA", raising=False)
    monkeypatch.setattr(many, "_Run", None)
    rows = (point("SupCon", "digits", "digits-supcon"), point("SupCon", "CIFAR-10", "cifar10-supcon"))
    monkeypatch.setitem(EXPERIMENTS, "small", lambda: Experiment(title="Two sets", rows=rows, make_table=grid))
    write_run(Path("here"), rows[0], linear=95.5)
    outcome = contune("experiment", "small", "--out", "here")
    assert outcome.code == 0, outcome.err
    assert "95.50" in outcome.out
    assert "Left out: CIFAR-10; cifar10 is not on this disk" in outcome.out
    assert "Left out: CIFAR-10; cifar10 is not on this disk" in Path("here/table.md").read_text()
    assert {path.name for path in Path("here").iterdir()} == {*FILES, ABOUT, "supcon-digits-seed0"}


def test_where_no_data_is_there_nothing_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(many, "_Run", None)
    outcome = contune("experiment", "fig-k1", "data.path=nowhere")
    assert outcome.code == 2
    assert outcome.err.startswith("contune: cifar100 is not on this disk (no nowhere/")
    assert list(tmp_path.iterdir()) == []


def test_a_finished_run_is_drawn_though_its_data_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(many, "_Run", None)
    row = find_experiment("fig-k1").rows[0]
    write_run(tmp_path / "out", row, overrides=("data.path=nowhere",), linear=78.5)
    outcomes = board.run(find_experiment("fig-k1").changed(["data.path=nowhere"]), seeds=[0], folder=tmp_path / "out")
    assert [outcome.remark() for outcome in outcomes] == ["", *["no data"] * 8]
    assert "78.50" in (tmp_path / "out" / "table.md").read_text()


def test_the_number_of_seeds_is_the_experiments(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: list[list[int]] = []

    def pretend(experiment: Experiment, *, seeds: list[int], **how: Any) -> list[Outcome]:
        seen.append(seeds)
        return [Outcome(row, num_missing=1) for row in experiment.rows]

    monkeypatch.setattr(board, "run", pretend)
    for words in (("ci-digits",), ("ci-digits", "--seeds", "2"), ("table1-digits",)):
        assert contune("experiment", *words, "--out", tmp_path).code == 0
    assert seen == [[0, 1, 2, 3, 4], [0, 1], [0]]
