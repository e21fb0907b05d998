"""The search: what it begins with, that it finds a peak, gives up, goes on, and repeats itself."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from made_up_trials import MadeUpWorkshop, peak_at_800, workshop

from contune.errors import UserError
from contune.tune.search import Ranges, search
from contune.tune.trial import OWN, PAPER, Trial, Values, best


def find(shop: MadeUpWorkshop, num_trials: int = 8, **changes: Any) -> list[Trial]:
    options = {"name": "study", "storage": None, "ranges": Ranges(), "seed": 0} | changes
    return search(shop, num_trials=num_trials, **options)


def test_the_recipes_values_and_the_papers_come_first_and_are_never_beaten_by_the_choice(tmp_path: Path) -> None:
    trials = find(workshop(tmp_path, accuracy=lambda v: 99.0 if v == Values(500, 1) else 50.0 + v.k2))
    assert [trial.values for trial in trials[:2]] == [Values(500, 1), Values(5000, 1)]
    assert [trial.why for trial in trials[:2]] == [OWN, PAPER]
    assert best(trials) is trials[0]


def test_it_comes_nearer_to_the_peak_than_the_defaults(tmp_path: Path) -> None:
    trials = find(workshop(tmp_path), 30, storage="sqlite:///:memory:")
    choice = best(trials)
    assert choice is not None
    assert choice.accuracy is not None
    assert choice.accuracy > (trials[0].accuracy or 0) + 0.5
    assert len(trials) == 30


def test_the_same_seed_proposes_the_same_and_another_does_not(tmp_path: Path) -> None:
    found = {
        place: [trial.values for trial in find(workshop(tmp_path / place), seed=seed)]
        for place, seed in (("a", 0), ("b", 0), ("c", 1))
    }
    assert found["a"] == found["b"]
    assert found["a"][2:] != found["c"][2:]


def test_what_was_interrupted_goes_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        find(workshop(tmp_path / "stopped", stop_after=2))
    again = workshop(tmp_path / "stopped")
    assert find(again) == find(workshop(tmp_path / "whole"))
    assert sum(map(len, again.batches)) == 8 - 2 * 2


def test_a_trial_that_was_half_written_down_is_written_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("optuna.Study.tell", stop)
        with pytest.raises(KeyboardInterrupt):
            find(workshop(tmp_path / "stopped"))
    assert find(workshop(tmp_path / "stopped")) == find(workshop(tmp_path / "whole"))


def test_a_finished_study_is_only_read(tmp_path: Path) -> None:
    first = find(workshop(tmp_path))
    again = workshop(tmp_path)
    assert find(again) == first
    assert again.batches == []


def test_runs_that_fall_behind_are_given_up_but_never_the_defaults(tmp_path: Path) -> None:
    trials = find(workshop(tmp_path), 12)
    given_up = [trial for trial in trials if trial.stopped_at is not None]
    assert given_up
    assert all(trial.accuracy is None and not trial.why for trial in given_up)
    assert max(trial.seen[4] for trial in given_up) < max(trial.seen[4] for trial in trials if trial.is_finished)


def test_two_hosts_share_a_study(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"sqlite:///{tmp_path / 'shared.db'}"
    with pytest.raises(KeyboardInterrupt):  # this host is in the middle of its second batch when the other comes
        find(workshop(tmp_path / "one", stop_after=1), storage=url)
    other = workshop(tmp_path / "other")
    trials = find(other, storage=url)
    assert "without 2 trials of other hosts" in capsys.readouterr().out
    tried_there = [values for batch in other.batches for values in batch]
    assert Values(500, 1) not in tried_there
    assert len(trials) == 2 + len(tried_there) == 6  # two more belong to the first host
    assert len(find(workshop(tmp_path / "one"), storage=url)) == 8
    assert "other hosts" not in capsys.readouterr().out


def test_own_values_outside_of_the_ranges_are_tried_all_the_same(tmp_path: Path) -> None:
    trials = find(workshop(tmp_path, "method.k1=0"), 4)
    assert trials[0].values == Values(0, 1)
    assert len(trials) == 4


def test_proposals_keep_to_the_ranges(tmp_path: Path) -> None:
    trials = find(workshop(tmp_path), ranges=Ranges((10.0, 100.0), (1.5, 2.0)))
    assert all(10 <= trial.values.k1 <= 100 and 1.5 <= trial.values.k2 <= 2 for trial in trials[2:])


def test_no_time_is_no_new_trials(tmp_path: Path) -> None:
    assert find(workshop(tmp_path, until=0.0)) == []


@pytest.mark.parametrize("ends", [(5.0, 1.0), (0.0, 1.0), (1.0,), (1.0, 2.0, 3.0)])
def test_a_range_that_is_none(ends: tuple[float, ...]) -> None:
    with pytest.raises(UserError, match="is no range; give a low and a high number above 0"):
        Ranges(k1=ends)


@pytest.mark.parametrize("url", ["nonsense", "nosuchdb://host/name", "sqlite:////no/such/folder/study.db"])
def test_a_database_that_cannot_be_opened(url: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot open the study at --storage"):
        find(workshop(tmp_path), storage=url)


def test_a_broken_database_in_the_folder_is_not_called_a_storage_that_was_given(tmp_path: Path) -> None:
    (tmp_path / "study.db").write_text("no database")
    with pytest.raises(UserError, match="file is not a database; move it away, the runs beside it are kept") as caught:
        find(workshop(tmp_path))
    assert "--storage" not in str(caught.value)


def test_a_database_that_goes_away_is_a_sentence_and_the_search_goes_on(tmp_path: Path) -> None:
    def unplug(values: Values) -> float:
        with closing(sqlite3.connect(tmp_path / "study.db")) as database, database:
            database.execute("ALTER TABLE trial_user_attributes RENAME TO elsewhere")
        return peak_at_800(values)

    with pytest.raises(UserError, match=r"the study study no longer answers: .*once it does, the same command goes on"):
        find(workshop(tmp_path, parallel=1, accuracy=unplug))
    with closing(sqlite3.connect(tmp_path / "study.db")) as database, database:
        database.execute("ALTER TABLE elsewhere RENAME TO trial_user_attributes")
    assert len(find(workshop(tmp_path))) == 8


def test_without_optuna_the_error_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "optuna", None)
    with pytest.raises(UserError, match=r"pip install contune\[tune\]"):
        find(workshop(tmp_path))
