"""Runs that fail: what it takes for the others to go on, and when that is the end."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from contune.errors import UserError
from contune.recipes import find_recipe
from contune.train.many import Job
from contune.tune import tuning, workshop
from contune.tune.advise import Advice
from contune.tune.search import Ranges, search
from contune.tune.short_run import short_config
from contune.tune.trial import SUPCON_VALUES, Trial, Values
from contune.tune.workshop import Workshop

FAILING: set[str] = set()
"""Folders of runs that fail; "all" for every one."""


@pytest.fixture(autouse=True)
def made_up_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    FAILING.clear()
    monkeypatch.setattr(workshop, "run_many", run_many)


def run_many(jobs: Sequence[Job], parallel: int) -> list[dict[str, Any]]:
    return [run(job) for job in jobs]


def run(job: Job) -> dict[str, Any]:
    if FAILING & {job.folder.name, "all"}:
        return {"error": f"no room for {job.folder.name}"}
    knobs: Any = job.config.method.settings
    result = {"linear_top1": 90.0 + knobs.k2, "knn_top1": 80.0, "measures": [{"num_images": 180}]}
    job.folder.mkdir(parents=True, exist_ok=True)
    (job.folder / "result.json").write_text(json.dumps(result))
    return result


def shop(folder: Path, **changes: Any) -> Workshop:
    return Workshop(short_config(find_recipe("digits")(), 4), folder, parallel=1, **changes)


def find(folder: Path) -> list[Trial]:
    return search(shop(folder), name="study", storage=None, ranges=Ranges(), num_trials=5, seed=0)


def test_where_nothing_runs_at_all_the_reason_is_said_and_it_is_tried_again(tmp_path: Path) -> None:
    FAILING.add("all")
    for _ in range(2):
        with pytest.raises(UserError, match="no room for k1-500-k2-1"):
            find(tmp_path)
    FAILING.clear()
    assert [trial.error for trial in find(tmp_path)] == [""] * 5


def test_values_that_fail_do_not_end_the_search(tmp_path: Path) -> None:
    third = find(tmp_path / "sound")[2].values
    FAILING.add(third.folder)
    trials = find(tmp_path / "tuned")
    assert [trial.values for trial in trials if trial.error] == [third]
    assert sum(trial.is_finished for trial in trials) == 5


def test_a_machine_on_which_nothing_runs_any_more_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Workshop, "_tell", lambda *_: FAILING.add("all"))  # after the first
    with pytest.raises(UserError, match="no room"):
        find(tmp_path)
    monkeypatch.undo()
    monkeypatch.setattr(workshop, "run_many", run_many)
    FAILING.clear()
    trials = find(tmp_path)
    assert sum(trial.error != "" for trial in trials) == 2
    assert sum(trial.is_finished for trial in trials) == 5


def test_advice_is_not_lost_when_the_time_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    advice = Advice(Values(451, 1.02), decisive_step=1, pull=1.0, push=1.0)
    monkeypatch.setattr(tuning, "read_moments", lambda _: [])
    monkeypatch.setattr(tuning, "advise", lambda *_: advice)
    with pytest.raises(UserError, match=r"advises k1 451, k2 1\.02; give more --minutes"):
        tuning._advised(shop(tmp_path, until=0.0), 0.1)
    assert [path.name for path in (tmp_path / "trials").iterdir()] == [SUPCON_VALUES.folder]
