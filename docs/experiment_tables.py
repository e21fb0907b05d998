"""docs/results.md: every experiment that has results in results/, with its table and its figure."""

import hashlib
import json
from pathlib import Path

from PIL import Image

from contune.experiments import Experiment, Outcome, read_saved, saved_folders
from contune.experiments.figures import make_figure
from contune.experiments.tables import make_table

DPI = 120
MADE_FROM = "made-from"
"""The entry of a picture that says which results it shows."""


def results_page(results: Path, images: Path) -> str:
    """Markdown; `images` is where `draw_figures` puts the figures, beside the page or below it."""
    sections = [_section(folder, images) for folder in saved_folders(results)]
    return "\n".join([HEAD, *(sections or ["None has been committed yet.\n"])])


HEAD = """# Results

The experiments whose runs are in [results/](../results/README.md), made from these files by `make docs`. Single runs
are in the [README](../README.md#results). Each can be done again by the command above its table, which takes up what
is there with `--from results/`.
"""


def experiments_list(results: Path) -> str:
    """For the README, links to the sections; nothing where there are none."""
    folders = saved_folders(results)
    if not folders:
        return ""
    return "\n".join(["", "", "Sets of runs, with tables and figures:", "", *map(_line, folders)])


def _line(folder: Path) -> str:
    experiment, _ = read_saved(folder)
    return f"- [{experiment.title}](docs/results.md#{folder.name})"


def draw_figures(results: Path, images: Path) -> None:
    images.mkdir(parents=True, exist_ok=True)
    for folder in saved_folders(results):
        experiment, outcomes = read_saved(folder)
        metadata = {MADE_FROM: _digest(experiment, outcomes)}
        make_figure(experiment, outcomes).savefig(images / f"{folder.name}.png", dpi=DPI, metadata=metadata)


def stale_figures(results: Path, images: Path) -> list[Path]:
    """Pictures that are not there or show other results; which pixels they have depends on the machine."""
    stale = []
    for folder in saved_folders(results):
        path = images / f"{folder.name}.png"
        if not path.exists():
            stale.append(path)
            continue
        with Image.open(path) as picture:
            if picture.info.get(MADE_FROM) != _digest(*read_saved(folder)):
                stale.append(path)
    return stale


def _section(folder: Path, images: Path) -> str:
    experiment, outcomes = read_saved(folder)
    return f"""## {folder.name}

**{experiment.title}.** `{" ".join(["contune experiment", experiment.name, *experiment.changes])}`
([files](../results/{folder.name}))

![{experiment.title}: the table below as a drawing]({images.name}/{folder.name}.png)

{make_table(experiment, outcomes).markdown()}"""


def _digest(experiment: Experiment, outcomes: list[Outcome]) -> str:
    """Stands for all that a figure shows, and not for how."""
    shown = [experiment.title, *((each.row.title, dict(each.row.reported), each.results) for each in outcomes)]
    return hashlib.sha256(json.dumps(shown, sort_keys=True).encode()).hexdigest()[:16]
