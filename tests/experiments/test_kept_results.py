"""Results that are kept, and an experiment that is drawn or continued from them."""

import json
from pathlib import Path

import pytest
from command_line import contune, read_json
from made_up import made_up_result, write_run

from contune.errors import UserError
from contune.experiments import board, find_experiment
from contune.experiments.gather import known_runs, read_results
from contune.experiments.outcome import Outcome
from contune.experiments.place import ABOUT, about
from contune.experiments.saved import read_saved, save, saved_folders
from contune.train import many

K1 = find_experiment("fig-k1-digits")


def outcomes(*overrides: str, num_seeds: int = 2) -> list[Outcome]:
    settings = (*K1.overrides, *overrides)
    return [
        Outcome(row, tuple(made_up_result(row, seed, overrides=settings, linear=90.0 + n) for seed in range(num_seeds)))
        for n, row in enumerate(K1.rows)
    ]


def test_one_file_a_run_and_what_they_are_of(tmp_path: Path) -> None:
    folder = tmp_path / "longer"
    num = save("fig-k1-digits", ["optim.epochs=9", "run.device=cpu"], outcomes("optim.epochs=9"), folder)
    assert num == 12
    assert {path.name for path in folder.iterdir()} >= {ABOUT, "supcon-seed0.json", "tcl-k1-500-seed1.json"}
    assert len(list(folder.iterdir())) == 13
    assert read_json(folder / ABOUT) == {"experiment": "fig-k1-digits", "overrides": ["optim.epochs=9"]}
    experiment, found = read_saved(folder)
    assert [len(outcome.results) for outcome in found] == [2] * 6
    assert "Settings changed for all runs: optim.epochs=9." in experiment.table(found).notes


def test_a_curve_is_one_line_and_nothing_else_changes(tmp_path: Path) -> None:
    row = K1.rows[0]
    result = made_up_result(row, curves={"epoch": [0.5, 1.0], "loss": [4.5, None]}, note="with [1,  2 ]")
    save("fig-k1-digits", [], [Outcome(row, (result,))], tmp_path / "x")
    text = (tmp_path / "x" / "supcon-seed0.json").read_text()
    assert '"loss": [4.5, null]' in text
    assert json.loads(text) == json.loads(json.dumps(result))


def test_folders_are_found_by_their_name_or_by_what_they_say(tmp_path: Path) -> None:
    save("fig-k1-digits", ["optim.epochs=9"], outcomes("optim.epochs=9"), tmp_path / "any-name")
    (tmp_path / "table1").mkdir()
    (tmp_path / "others").mkdir()
    assert [path.name for path in saved_folders(tmp_path)] == ["table1", "any-name"]


def test_runs_beside_a_folder_fill_its_gaps(tmp_path: Path) -> None:
    first, *others = outcomes(num_seeds=1)
    save("fig-k1-digits", [], others, tmp_path / "fig-k1-digits")
    (tmp_path / "alone.json").write_text(json.dumps(first.results[0]))
    _, found = read_saved(tmp_path / "fig-k1-digits")
    assert [len(outcome.results) for outcome in found] == [1] * 6


def test_of_two_results_the_experiments_own_counts(tmp_path: Path) -> None:
    save("fig-k1-digits", [], outcomes(num_seeds=1), tmp_path / "some-folder")
    twin = made_up_result(K1.rows[0], overrides=K1.overrides, linear=12.0)
    (tmp_path / "a-twin.json").write_text(json.dumps(twin))
    done = contune("experiment", "fig-k1-digits", "--from", tmp_path, "--draw", "--out", tmp_path / "out")
    assert "90.00" in done.out
    assert "12.00" not in done.out
    assert read_saved(tmp_path / "some-folder")[1][0].results[0]["linear_top1"] == 90.0


def test_a_file_of_somebody_else_marks_nothing(tmp_path: Path) -> None:
    (tmp_path / ABOUT).write_text('["theirs"]')
    assert about(tmp_path) == (tmp_path.name, [])


def test_drawing_from_kept_results_runs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many, "_Run", None)
    save("fig-k1-digits", [], outcomes(), tmp_path / "results" / "fig-k1-digits")
    out = tmp_path / "out"
    done = contune("experiment", "fig-k1-digits", "--from", tmp_path / "results", "--draw", "--out", out)
    assert done.code == 0, done.err
    assert "95.00 ± 0.00" in done.out, "both seeds, though none was asked for"
    assert (out / "figure.svg").exists()
    one = contune("experiment", "fig-k1-digits", "--from", tmp_path, "--draw", "--seeds", "1", "--out", out)
    assert " 95.00 " in one.out


def test_what_is_known_is_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def pretend(jobs: list[many.Job], parallel: int | None) -> list[dict[str, str]]:
        asked.extend(job.folder.name for job in jobs)
        return [{"error": "not today"} for _ in jobs]

    monkeypatch.setattr(board, "run_many", pretend)
    known = outcomes(num_seeds=1)[:4]
    save("fig-k1-digits", [], known, tmp_path / "results" / "some")
    done = contune("experiment", "fig-k1-digits", "--from", tmp_path / "results", "--out", tmp_path / "out")
    assert done.code == 2, "two failed"
    assert asked == ["tcl-k1-2000-seed0", "tcl-k1-5000-seed0"]
    assert "93.00" in done.out


def test_only_what_is_new_is_saved(tmp_path: Path) -> None:
    save("fig-k1-digits", [], outcomes(num_seeds=1)[:5], tmp_path / "results" / "some")
    write_run(tmp_path / "out", K1.rows[5], overrides=K1.overrides)
    new = tmp_path / "results" / "fig-k1-digits"
    words = ("--from", tmp_path / "results", "--draw", "--save", new, "--out", tmp_path / "out")
    done = contune("experiment", "fig-k1-digits", *words)
    assert done.code == 0, done.err
    assert f"results  {new}: 1 new" in done.out
    assert {path.name for path in new.iterdir()} == {ABOUT, "tcl-k1-5000-seed0.json"}


def test_run_folders_count_too_and_other_json_does_not(tmp_path: Path) -> None:
    write_run(tmp_path, K1.rows[0], seed=3, overrides=K1.overrides)
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "list.json").write_text("[]")
    found = read_results(tmp_path)
    assert [path.name for path, _ in found] == ["result.json"]
    assert list(known_runs(K1.rows, [result for _, result in found], K1.overrides)) == ["supcon-seed3"]


def test_a_result_of_unknown_settings_belongs_nowhere() -> None:
    (outcome, *_) = outcomes(num_seeds=1)
    result = outcome.results[0]
    result["config"]["data"]["from_the_future"] = 1
    assert known_runs(K1.rows, [result], K1.overrides) == {}


def test_folders_without_its_results_are_refused(tmp_path: Path) -> None:
    done = contune("experiment", "fig-k1-digits", "--from", tmp_path, "--draw", "--out", tmp_path / "out")
    assert done.code == 2
    assert done.err.startswith(
        f"contune: {tmp_path} has no result with the settings of fig-k1-digits; add the KEY=VALUE"
    )
    save("fig-k1-digits", ["optim.epochs=9"], outcomes("optim.epochs=9"), tmp_path / "longer")
    done = contune("experiment", "fig-k1-digits", "--from", tmp_path, "--draw", "--out", tmp_path / "out")
    assert "settings of fig-k1-digits, the nearest differs in optim.epochs; add the KEY=VALUE" in done.err
    with pytest.raises(UserError, match="is not a folder"):
        read_results(tmp_path / "nowhere")


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write to"):
        save("fig-k1-digits", [], outcomes(), tmp_path / "file" / "below")
