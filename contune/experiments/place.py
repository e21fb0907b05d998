"""Which experiment a folder is of: a small file in it says so, and nothing of another one is written there."""

import json
from pathlib import Path

from contune.errors import UserError
from contune.experiments.experiment import Experiment
from contune.experiments.plan import meaningful
from contune.files import check_unused, make_folder_of, write_whole

ABOUT = "experiment.json"
"""The experiment, and the settings it ran with."""


def mark(folder: Path, name: str, overrides: list[str]) -> None:
    """Makes the folder where it is missing."""
    path = folder / ABOUT
    make_folder_of(path)
    write_whole(path, json.dumps({"experiment": name, "overrides": meaningful(overrides)}, indent=2) + "\n")


def about(folder: Path) -> tuple[str, list[str]]:
    """The name of the experiment, and the settings it ran with; a folder that does not say it is named after it."""
    return _marked(folder) or (folder.name, [])


def _marked(folder: Path) -> tuple[str, list[str]] | None:
    """What its file says; None where there is none of ours."""
    try:
        content = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
        return str(content["experiment"]), [str(text) for text in content["overrides"]]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def is_of(folder: Path, experiment: Experiment) -> bool:
    name, overrides = about(folder)
    return (name, sorted(overrides)) == (experiment.name, sorted(meaningful(experiment.given)))


def check(folder: Path, experiment: Experiment) -> None:
    """Whether this experiment may be drawn here: in a new or empty folder, or in its own."""
    if (marked := _marked(folder)) is not None:
        if not is_of(folder, experiment):
            held = " ".join([marked[0], *marked[1]])
            raise UserError(f"{folder} holds the experiment {held}; give another folder with --out")
    elif not _has_runs_of(folder, experiment):
        check_unused(folder, "run of this experiment")


def _has_runs_of(folder: Path, experiment: Experiment) -> bool:
    """Such as are there after a stop before anything was drawn, or were brought from another machine."""
    names = {row.folder(0).removesuffix("0") for row in experiment.rows}
    return any(found.parent.name.rstrip("0123456789") in names for found in folder.glob("*/config.json"))
