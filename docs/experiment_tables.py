"""docs/results.md: the verdict on TCL, every experiment that has results in results/, and how they were measured."""

import hashlib
import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from PIL import Image
from results_table import files_table, measure_name, protocols, results_table, signed

from contune import experiments
from contune.eval.measures import LINEAR, TOP1
from contune.experiments import Experiment, Outcome, saved_folders
from contune.experiments.figures import make_figure
from contune.experiments.plan import SUPCON, TCL
from contune.experiments.tables import make_table
from contune.report.statistics import Spread

DPI = 120
MADE_FROM = "made-from"
"""The entry of a picture that says which results it shows."""
FIRST = ("ci", "fig-k1", "fig-k2", "ssl-cifar100")
SHARED_NOTES = ("Top-1 on the", "± is the", "On a CPU,", "Differences are", "Gradients:", "vs ", "online probe:")
"""Beginnings of notes that hold for every table. The page states them once, at its end."""
CAVEATS = ("The paper's numbers", "Settings changed", "What others report", "DINO:")
"""Beginnings of notes that a reader of the table must not miss."""
MEASURING = "How accuracy is measured"
AUTHORS = """
The full probe follows the paper. The code of the paper's authors uses half the batch size and leaves batch-norm in
training mode. Its cosine schedule falls one epoch late, and to 1e-3 instead of 0.
"""

HEAD = """# Results

This page shows what our runs measured, and the command that repeats each of them. `make docs` writes it from the files
in [results/](../results/README.md); a test fails if the two disagree. With `--from results/` a command reuses the
finished runs. The digits experiments at the end are smoke tests: they run on a CPU in minutes and say little about
photos.

A recipe that is not on this page has not been run in full here.

## Does TCL help?

"""
COUNTED = """
*All finished runs* are those of CIFAR-100 with ResNet-18 below and the repeats at
[one revision](../results/one-revision). They include the TCL runs under
[other engines](../benchmarks/README.md#findings). [How accuracy is measured](#how-accuracy-is-measured) defines the
probes.
"""
ACCURACIES = """## Supervised training

Mean ± 95 % confidence interval over seeds. One run at 77 % on 10,000 images has a standard error of 0.4 points, one at
95 % a standard error of 0.2. The paper's column is for the same data, encoder, method and epochs. The paper does not
state the batch size of its table 2; ours is 256 views. On Fashion-MNIST the paper reports ResNet-50: 94.5 %
(cross-entropy), 95.5 % (SupCon) and 95.7 % (TCL).

"""


@cache
def read_saved(folder: Path) -> tuple[Experiment, list[Outcome]]:
    return experiments.read_saved(folder)


def results_page(results: Path, images: Path, answer: str) -> str:
    """Markdown; `images` is where `draw_figures` puts the figures, below the page."""
    folders = ordered_folders(results)
    names = protocols(results)
    saved = {folder: read_saved(folder) for folder in folders}
    sections = [_section(folder, *saved[folder], images, names) for folder in folders]
    notes = [note for pair in saved.values() for note in make_table(*pair).notes if note.startswith(SHARED_NOTES)]
    measured = [f"- **{name}**: {protocol}." for protocol, name in sorted(names.items(), key=lambda item: item[1])]
    shared = [f"- {note}" for note in dict.fromkeys(notes)]
    ending = [f"## {MEASURING}\n", *measured, AUTHORS, "In all tables:\n", *shared, ""]
    ending += ["## Run files and training times\n", files_table(results), ""]
    return "\n".join([HEAD + answer, COUNTED, ACCURACIES + results_table(results) + "\n", *sections, *ending])


def ordered_folders(results: Path) -> list[Path]:
    """CIFAR first, digits last."""
    folders = saved_folders(results)
    place = {name: number for number, name in enumerate(FIRST)}
    return sorted(folders, key=lambda folder: (folder.name.endswith("-digits"), place.get(folder.name, len(FIRST))))


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


def _section(
    folder: Path, experiment: Experiment, outcomes: list[Outcome], images: Path, names: Mapping[str, str]
) -> str:
    table, *_ = make_table(experiment, outcomes).markdown().split("\n\n")
    notes = [note for note in make_table(experiment, outcomes).notes if not note.startswith(SHARED_NOTES)]
    caveats = [note for note in notes if note.startswith(CAVEATS)]
    notes = [note for note in notes if note not in caveats]
    for protocol, name in names.items():
        notes = [note.replace(protocol, f"[{name}](#{slug(MEASURING)})") for note in notes]
    command = " ".join(["contune experiment", experiment.name, *experiment.changes])
    sentence = SENTENCES.get(experiment.layout, lambda _: "")(outcomes)
    return f"""## {experiment.title}

{sentence}

![{experiment.title}: the table below as a figure]({images.name}/{folder.name}.png)

{table}

{chr(10).join(caveats)}

```bash
{command}
```

<details markdown="1"><summary>Protocols, revisions and files</summary>

- [Result files](../results/{folder.name})
{chr(10).join(f"- {note}" for note in notes)}

</details>
""".replace("\n\n\n\n", "\n\n")


# One sentence with the main numbers, by layout.


def _seeds_sentence(outcomes: list[Outcome]) -> str:
    *_, supcon, tcl = outcomes
    found = tcl.difference(supcon)
    if found is None or found.half is None:
        return ""
    text = f"TCL − SupCon is {signed(Spread(found.mean, found.half))} points by the {_measure(tcl)}"
    more = "" if tcl.results[0]["data"] == "digits" else " The verdict above also counts all other runs."
    return f"{text}, paired over {found.num} seeds.{more}"


def _gradients_sentence(outcomes: list[Outcome]) -> str:
    """The best setting of TCL, the last one, and SupCon."""
    tuned = [each for each in outcomes if each.row.method == TCL and each.results]
    supcon = [each for each in outcomes if each.row.method == SUPCON and each.results]
    scored = sorted(tuned, key=lambda each: -(each.accuracy() or Spread(0)).mean)
    if not scored or not supcon:
        return ""
    shown = dict.fromkeys([scored[0].row.title, scored[-1].row.title])
    parts = [_named(each) for each in tuned if each.row.title in shown]
    return f"By the {_measure(scored[0])}: {'; '.join([*parts, _named(supcon[0])])}."


def _methods_sentence(outcomes: list[Outcome]) -> str:
    """The best method, TCL and SimCLR."""
    finished = [each for each in outcomes if each.results and not each.row.is_baseline]
    if not finished:
        return ""
    best = max(finished, key=lambda each: (each.accuracy(LINEAR) or Spread(0)).mean)
    shown = [best, *(each for each in finished if each.row.name in ("tcl-ssl", "simclr") and each is not best)]
    return f"By the {_measure(best)}: {'; '.join(_named(each, LINEAR) for each in shown)}."


def _named(outcome: Outcome, column: str = TOP1) -> str:
    num = len(outcome.results)
    return f"{outcome.row.title} has {outcome.accuracy(column)} % ({num} seed{'s' * (num > 1)})"


def _measure(outcome: Outcome) -> str:
    return measure_name(outcome.results[0])


SENTENCES = {
    "seeds": _seeds_sentence,
    "k1": _gradients_sentence,
    "k2": _gradients_sentence,
    "methods": _methods_sentence,
}


def _digest(experiment: Experiment, outcomes: list[Outcome]) -> str:
    """Stands for all that a figure shows, and not for how."""
    shown = [experiment.title, *((each.row.title, dict(each.row.reported), each.results) for each in outcomes)]
    return hashlib.sha256(json.dumps(shown, sort_keys=True).encode()).hexdigest()[:16]
