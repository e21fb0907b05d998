"""docs/results.md: a verdict per claim of the paper, every experiment in results/, and how accuracy is measured."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from PIL import Image
from results_table import DATA, markdown_table, results_table

from contune import experiments
from contune.experiments import Experiment, Outcome, plan, saved_folders, verdicts
from contune.experiments.figures import make_figure
from contune.experiments.plan import Results
from contune.experiments.tables import make_table
from contune.experiments.verdicts import MEASURES, OPEN, Finding

DPI = 120
MADE_FROM = "made-from"
"""The entry of a picture that says which results it shows."""
FIRST = ("ci", "losses", "fig-k1", "fig-k2", "ssl-cifar100")
SHARED_NOTES = ("Top-1 on the", "± is the", "Differences are", "Gradients:")
"""Beginnings of notes that hold for every table. The page states them once, at its end."""
CAVEATS = ("The paper's numbers", "Settings changed", "What others report", "DINO:")
"""Beginnings of notes that a reader of the table must not miss."""
MEASURING = "How accuracy is measured"

HEAD = """# Results

Here you find out which claims of the paper our runs confirm, and the command that repeats each run. `make docs` writes
this page from the files in [results/](../results/README.md); a test fails if the two disagree.

## Which claims hold

"""
RULES = f"""
Every finished run at a setting counts. ± is a 95 % confidence interval over runs; of fewer than three runs, at least
that over the test images. A claim about a difference is reproduced if the interval lies above 0. It is not reproduced
if the interval lies below 0, or below the paper's gain at the same setting. Otherwise it is open. An accuracy is
reproduced if ours is at most half a point lower, and partly if at most 1.5 points. A setting after the number is ours
where the paper has another one.
[{MEASURING}](#how-accuracy-is-measured) defines the probes. `contune experiment verdicts` prints this table.

"""
ACCURACIES = """## Supervised training

The paper's column is for the same data, encoder and epochs.

"""
DIGITS = """## Smoke tests on handwritten digits

These experiments run on a CPU in minutes. They check the code and say little about photos.
"""
ENDING = """
The full probe follows the paper. The code of the paper's authors uses half the batch size and leaves batch-norm in
training mode. Its cosine schedule falls one epoch late, and to 1e-3 instead of 0.

In all tables:

"""


@cache
def read_saved(folder: Path) -> tuple[Experiment, list[Outcome]]:
    return experiments.read_saved(folder)


def results_page(results: Path, images: Path) -> str:
    """Markdown; `images` is where `draw_figures` puts the figures, below the page."""
    found = plan.read_results(results)
    claims = verdicts.read_claims(results) if (results / "claims.toml").exists() else []
    findings, names = verdicts.find_all(claims, found), protocols(found)
    place = {name: number for number, name in enumerate(FIRST)}
    folders = sorted(saved_folders(results), key=lambda folder: place.get(folder.name, len(place)))
    large, small = ([f for f in folders if f.name.endswith("-digits") == is_small] for is_small in (False, True))
    notes = [note for f in folders for note in make_table(*read_saved(f)).notes if note.startswith(SHARED_NOTES)]
    parts = [HEAD + verdicts.summary(findings), *verdict_tables(findings, results), ACCURACIES + results_table(found)]
    parts += [section(folder, findings, images, names) for folder in large]
    parts += [DIGITS, *(section(folder, findings, images, names, level="###") for folder in small)] if small else []
    measured = [f"- **{name}**: {protocol}." for protocol, name in sorted(names.items(), key=lambda item: item[1])]
    shared = [f"- {note}" for note in dict.fromkeys(notes)]
    return "\n\n".join([*parts, "\n".join([f"## {MEASURING}\n", *measured])]) + "\n" + ENDING + "\n".join(shared) + "\n"


def verdict_tables(findings: Sequence[Finding], results: Path) -> list[str]:
    """The claims that our runs decide; folded, the open ones and the files behind each."""
    rows = list(zip(findings, verdicts.table(findings), strict=True))
    decided, undecided = ([row for each, row in rows if (each.verdict == OPEN) == is_open] for is_open in (False, True))
    files: dict[tuple[Path, ...], str] = {}
    for finding in findings:
        for title, found in finding.files.items():
            files.setdefault(tuple(path.resolve().relative_to(results.resolve()) for path in found), title)
    lines = [
        f"- {title}: " + ", ".join(f"[{path.with_suffix('')}](../results/{path})" for path in paths)
        for paths, title in files.items()
    ]
    tables = [markdown_table(verdicts.COLUMNS, each) for each in (decided, undecided)]
    return [
        tables[0],
        RULES.strip(),
        folded(f"The {len(undecided)} open claims, and the GPU time of one H200 that their runs need", tables[1]),
        folded("The result files behind the verdicts, by experiment and row", "\n".join(lines)),
    ]


def folded(title: str, text: str) -> str:
    return f'<details markdown="1"><summary>{title}</summary>\n\n{text}\n\n</details>'


def section(
    folder: Path, findings: Sequence[Finding], images: Path, names: Mapping[str, str], level: str = "##"
) -> str:
    """Verdict, figure, table, command; folded, what else there is to know about the runs."""
    experiment, outcomes = read_saved(folder)
    table, *_ = make_table(experiment, outcomes).markdown().split("\n\n")
    notes = [note for note in make_table(experiment, outcomes).notes if not note.startswith(SHARED_NOTES)]
    caveats = [note for note in notes if note.startswith(CAVEATS)]
    for protocol, name in names.items():
        notes = [note.replace(protocol, f"[{name}](#{slug(MEASURING)})") for note in notes]
    command = " ".join([experiment.name, *experiment.changes])
    own = [f"- {finding.sentence}" for finding in findings if finding.claim.experiment == command and finding.files]
    details = [f"- [Result files](../results/{folder.name})", *(f"- {note}" for note in notes if note not in caveats)]
    parts = [
        f"{level} {experiment.title}",
        "\n".join(own),
        f"![{experiment.title}: the table below as a figure]({images.name}/{folder.name}.png)",
        table,
        "\n".join(caveats),
        f"```bash\ncontune experiment {command}\n```",
        folded("Protocols, revisions and timings", "\n".join(details)),
    ]
    return "\n\n".join(part for part in parts if part)


def protocols(results: Results) -> dict[str, str]:
    """The names of all protocols, with the data set where a name has several."""
    found: dict[str, tuple[str, str]] = {}
    for result in (result for runs in results.values() for each in runs.values() for result in each):
        for score in result["measures"]:
            if score["name"] in MEASURES:
                place = MEASURES[score["name"]].removeprefix("the "), DATA.get(result["data"], str(result["data"]))
                found.setdefault(score["protocol"], place)
    names = [name for name, _ in found.values()]
    return {text: f"{name} on {data}" if names.count(name) > 1 else name for text, (name, data) in found.items()}


def draw_figures(results: Path, images: Path) -> None:
    images.mkdir(parents=True, exist_ok=True)
    for folder in saved_folders(results):
        experiment, outcomes = read_saved(folder)
        metadata = {MADE_FROM: _digest(experiment, outcomes)}
        make_figure(experiment, outcomes).savefig(images / f"{folder.name}.png", dpi=DPI, metadata=metadata)


def stale_figures(results: Path, images: Path) -> list[Path]:
    """Pictures that are missing or show other results. Their pixels may differ from machine to machine."""
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


def slug(heading: str) -> str:
    """The anchor of a heading, on GitHub and in the site."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _digest(experiment: Experiment, outcomes: list[Outcome]) -> str:
    """Stands for all that a figure shows, and not for how."""
    runs = [[{**result, "file": ""} for result in each.results] for each in outcomes]
    shown = [experiment.title, *((each.row.title, dict(each.row.reported)) for each in outcomes), runs]
    return hashlib.sha256(json.dumps(shown, sort_keys=True).encode()).hexdigest()[:16]
