"""Results that are kept: a folder with a file for each run, from which an experiment can be drawn again."""

import json
import re
from collections.abc import Container, Sequence
from pathlib import Path

from contune.errors import UserError
from contune.experiments import EXPERIMENTS, Experiment, find_experiment
from contune.experiments.gather import from_results, read_results
from contune.experiments.outcome import Outcome, Result
from contune.experiments.plan import meaningful

ABOUT = "experiment.json"
"""What a folder of results is of, where its name does not say it: the experiment, and the settings it ran with."""


def save(
    name: str, overrides: Sequence[str], outcomes: Sequence[Outcome], folder: Path, *, but: Container[str] = ()
) -> int:
    """Writes each run's result to `folder`, except those named in `but`; how many these were."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        content = {"experiment": name, "overrides": meaningful(overrides)}
        (folder / ABOUT).write_text(json.dumps(content, indent=2) + "\n")
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


def about(folder: Path) -> tuple[str, list[str]]:
    """The name of the experiment, and the settings it ran with."""
    path = folder / ABOUT
    if not path.exists():
        return folder.name, []
    content = json.loads(path.read_text())
    return str(content["experiment"]), list(content["overrides"])


def read_saved(folder: Path) -> tuple[Experiment, list[Outcome]]:
    """The experiment, and what its rows came to: by its own files, else by others of the same settings beside it."""
    name, overrides = about(folder)
    experiment = find_experiment(name).changed(overrides)
    everywhere = sorted(read_results(folder.parent), key=lambda found: found[0].parent != folder)
    return experiment, from_results(experiment.rows, [result for _, result in everywhere], experiment.overrides)
