"""Which results belong to which row: by the folder they lie in, or by their settings."""

import json
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from pathlib import Path

from contune.config import Config
from contune.errors import UserError
from contune.experiments.outcome import Outcome, Result
from contune.experiments.plan import Row
from contune.run import RunFolder, missing_keys

Known = Mapping[str, Result]
"""Results of other places that count as done, by the name of the run folder that each stands for."""


def from_folder(
    rows: Sequence[Row],
    overrides: Sequence[str],
    seeds: Sequence[int],
    folder: Path,
    *,
    errors: Mapping[Path, str] | None = None,
    known: Known | None = None,
    absent: Mapping[str, str] | None = None,
) -> list[Outcome]:
    """What lies in an experiment's folder; `errors` says of runs in it why they failed, `absent` of data sets."""
    outcomes = []
    for row in rows:
        results: list[Result] = []
        failures: list[str] = []
        for seed in seeds:
            run = RunFolder(folder / row.folder(seed))
            elsewhere = (known or {}).get(row.folder(seed))
            result, why = (elsewhere, None) if elsewhere else _result(run, row.config(overrides, seed))
            why = (errors or {}).get(run.path, why)
            if why is not None:
                failures.append(f"seed {seed}: {_with_full_stop(why)}")
            elif result is not None:
                results.append(result)
        missing = len(seeds) - len(results) - len(failures)
        no_data = (absent or {}).get(row.config(overrides, 0).data.name, "") if missing else ""
        outcomes.append(Outcome(row, tuple(results), tuple(failures), missing, no_data))
    return outcomes


def _result(run: RunFolder, config: Config) -> tuple[Result | None, str | None]:
    """What the run measured, if it has ended, or why its folder cannot be it."""
    try:
        run.check(config)
        return run.result(), None
    except UserError as error:
        return None, str(error)


def _with_full_stop(sentence: str) -> str:
    return sentence if sentence.endswith((".", "?", "!")) else f"{sentence}."


def read_results(folder: Path) -> list[tuple[Path, Result]]:
    """All results below a folder: committed ones, one file a run, or the result.json of run folders."""
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder; give one that holds result files or runs")
    found = []
    for path in sorted(folder.rglob("*.json")):
        try:
            content = json.loads(path.read_text())
        except (json.JSONDecodeError, UnicodeDecodeError):
            continue
        if isinstance(content, dict) and not missing_keys(content):
            found.append((path, content))
    return found


def from_results(rows: Sequence[Row], results: Iterable[Result], overrides: Sequence[str] = ()) -> list[Outcome]:
    """For result files from wherever: each goes to the rows whose settings it has; those of none are left out."""
    by_row = _by_row(rows, results, overrides)
    if not any(by_row):
        raise UserError("none of these results has the settings of this experiment; give the overrides they ran with")
    return [
        Outcome(row, tuple(own.values()), num_missing=0 if own else 1) for row, own in zip(rows, by_row, strict=True)
    ]


def known_runs(rows: Sequence[Row], results: Iterable[Result], overrides: Sequence[str]) -> dict[str, Result]:
    """Results that an experiment need not compute again, by the name of the run folder that each stands for."""
    by_row = _by_row(rows, results, overrides)
    return {row.folder(seed): result for row, own in zip(rows, by_row, strict=True) for seed, result in own.items()}


def nearest(rows: Sequence[Row], results: Iterable[Result], overrides: Sequence[str]) -> list[str]:
    """The settings in which the most similar of the results still differs from a row; none where there is no result."""
    wanted = [_anywhere(row.config(overrides, seed=0)) for row in rows]
    known = [_anywhere(config) for result in results if (config := _config_of(result)) is not None]
    return min((theirs.differences(ours) for theirs in known for ours in wanted), key=len, default=[])


def _by_row(rows: Sequence[Row], results: Iterable[Result], overrides: Sequence[str]) -> list[dict[int, Result]]:
    """For each row its results by seed, in order; of two with the same seed the first."""
    by_meaning: dict[str, dict[int, Result]] = {}
    for result in sorted(results, key=lambda result: int(result["seed"])):
        by_meaning.setdefault(meaning_of(result), {}).setdefault(int(result["seed"]), result)
    return [by_meaning.get(_meaning(row.config(overrides, seed=0)), {}) for row in rows]


def meaning_of(result: Result) -> str:
    """The same for results of the same settings, whatever the seed; what an older version did not have is a default.

    Nothing for the result of a version whose settings this one does not know.
    """
    config = _config_of(result)
    return "" if config is None else _meaning(config)


def _config_of(result: Result) -> Config | None:
    try:
        return Config.from_dict(result["config"])
    except UserError:
        return None


def _meaning(config: Config) -> str:
    return _anywhere(config).fingerprint()


def _anywhere(config: Config) -> Config:
    """What is computed, whatever the seed, and wherever the data lies."""
    same = deepcopy(config)
    same.run.seed, same.data.path, same.data.classes = 0, None, None
    return same
