"""The page of each experiment whose results are in results/NAME: its table and, beside it, its figure."""

import json
from pathlib import Path

from contune.experiments import EXPERIMENTS, Experiment, find_experiment
from contune.experiments.gather import from_results
from contune.experiments.outcome import Outcome
from contune.experiments.table import to_markdown

PAGE, FIGURE = "README.md", "figure.png"


def experiment_folders(results: Path) -> list[Path]:
    return [results / name for name in EXPERIMENTS if (results / name).is_dir()]


def experiment_page(folder: Path) -> str:
    """Markdown of what the JSON files in a folder come to."""
    experiment, outcomes = _read(folder)
    return f"""# {experiment.title}

`contune experiment {folder.name}` does these runs; this page is made from the files beside it by `make docs`.

{to_markdown(experiment.table(outcomes))}
![The table as a drawing: a line for each method, a mark for each accuracy]({FIGURE})
"""


def draw_experiment(folder: Path) -> None:
    experiment, outcomes = _read(folder)
    experiment.figure(outcomes).savefig(folder / FIGURE, dpi=120)


def _read(folder: Path) -> tuple[Experiment, list[Outcome]]:
    experiment = find_experiment(folder.name)
    results = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    return experiment, from_results(experiment.rows, results, experiment.overrides)
