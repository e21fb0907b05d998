"""Which results belong to which row: by the folder they lie in, or by their settings."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from contune.config import Config
from contune.errors import UserError
from contune.experiments.outcome import Outcome, Result
from contune.experiments.plan import Row
from contune.run import RunFolder

MAY_DIFFER = {"run.seed", "data.path"}
"""Settings in which a result may differ from the row that it belongs to, machine settings aside."""


def from_folder(
    rows: Sequence[Row], overrides: Sequence[str], seeds: Sequence[int], folder: Path, errors: Mapping[Path, str]
) -> list[Outcome]:
    """What lies in an experiment's folder; `errors` says of runs in it why they failed."""
    outcomes = []
    for row in rows:
        results: list[Result] = []
        failures: list[str] = []
        for seed in seeds:
            run = RunFolder(folder / row.folder(seed))
            why = errors.get(run.path) or _other_run(run, row.config(overrides, seed))
            if why is not None:
                failures.append(f"seed {seed}: {why}.")
            elif (result := run.result()) is not None:
                results.append(result)
        missing = len(seeds) - len(results) - len(failures)
        outcomes.append(Outcome(row, tuple(results), tuple(failures), missing))
    return outcomes


def _other_run(run: RunFolder, config: Config) -> str | None:
    try:
        run.check(config)
    except UserError as error:
        return str(error)
    return None


def from_results(rows: Sequence[Row], results: Iterable[Result], overrides: Sequence[str] = ()) -> list[Outcome]:
    """For result files from wherever: each goes to the rows whose settings it has; those of none are left out."""
    known = [(Config.from_dict(result["config"]), result) for result in results]
    outcomes = []
    for row in rows:
        wanted = row.config(overrides, seed=0)
        own = [result for config, result in known if set(wanted.differences(config)) <= MAY_DIFFER]
        own.sort(key=lambda result: int(result["seed"]))
        outcomes.append(Outcome(row, tuple(own), num_missing=0 if own else 1))
    if not any(outcome.results for outcome in outcomes):
        raise UserError("none of these results has the settings of this experiment; give the overrides they ran with")
    return outcomes
