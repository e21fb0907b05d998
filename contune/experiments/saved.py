"""Results that are kept: a folder with a file for each run, from which an experiment can be drawn again."""

import json
import re
from collections.abc import Container, Sequence
from pathlib import Path

from contune.errors import UserError
from contune.experiments import EXPERIMENTS, Experiment, find_experiment
from contune.experiments.gather import from_results, read_results
from contune.experiments.outcome import Outcome, Result
from contune.experiments.place import ABOUT, about, is_of, mark


def save(
    name: str, overrides: Sequence[str], outcomes: Sequence[Outcome], folder: Path, *, but: Container[str] = ()
) -> int:
    """Writes each run's result to `folder`, except those named in `but`; how many these were."""
    try:
        mark(folder, name, list(overrides))
        runs = {outcome.row.folder(int(result["seed"])): result for outcome in outcomes for result in outcome.results}
        new = {run: result for run, result in runs.items() if run not in but}
        for run, result in new.items():
            (folder / f"{run}.json").write_text(_compact(result))
    except OSError as error:
        raise UserError(f"cannot write to {folder}: {error.strerror}") from None
    return len(new)


def _compact(result: Result) -> str:
    """JSON with a line for each entry, but a curve on one line; a text in it never has a bare line break."""
    text = json.dumps(result, indent=1)
    curves = re.sub(r"\[\n[-+0-9.,eEnul\s]+\]", lambda match: "[" + " ".join(match[0][1:-1].split()) + "]", text)
    return f"{curves}\n"


def saved_folders(results: Path) -> list[Path]:
    """Those of a folder of results that hold an experiment, in the order of the experiments."""
    folders = [path for path in sorted(results.iterdir()) if path.is_dir()]
    known = [path for path in folders if (path / ABOUT).exists() or path.name in EXPERIMENTS]
    return sorted(known, key=lambda path: list(EXPERIMENTS).index(about(path)[0]))


def read_saved(folder: Path) -> tuple[Experiment, list[Outcome]]:
    """The experiment, and what its rows came to: by its own files, else by others of the same settings beside it."""
    name, overrides = about(folder)
    experiment = find_experiment(name).changed(overrides)
    return experiment, from_results(experiment.rows, results_for(experiment, folder.parent), experiment.overrides)


def results_for(experiment: Experiment, source: Path) -> list[Result]:
    """All below a folder, first those of the experiment's own: of two with the same settings and seed these count."""
    everywhere = read_results(source)
    places = {folder for path, _ in everywhere for folder in path.parents if folder.is_relative_to(source)}
    own = {folder for folder in places if is_of(folder, experiment)}
    return [result for _, result in sorted(everywhere, key=lambda found: own.isdisjoint(found[0].parents))]
