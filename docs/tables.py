"""What docs/build.py inserts into the README and docs/results.md, from the files in results/ and benchmarks/results/.

The README has numbers, verdicts and a table. docs/results.md has a verdict per claim of the paper, every experiment in
results/, and how accuracy is measured.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import mean
from textwrap import fill
from typing import Any

from PIL import Image

from contune.eval.measures import KNN, MEASURES, TOP1
from contune.experiments import (
    EXPERIMENTS,
    Experiment,
    Outcome,
    find_experiment,
    finished,
    plan,
    verdicts,
)
from contune.experiments.figures import make_figure
from contune.experiments.plan import CROSS_ENTROPY, PAPER, SUPCON, TCL, Results
from contune.experiments.tables import make_table, markdown_table, measure_of
from contune.experiments.verdicts import NOT, NOT_RUN, OPEN, PARTLY, REPRODUCED, Finding, summary
from contune.methods import METHODS
from contune.recipes.paper import TITLES
from contune.recipes.ssl import ROWS
from contune.report.statistics import FEW

ENCODERS = {"resnet18": "ResNet-18", "resnet50": "ResNet-50"}
SHOWN = (("table1",), ("ci",), ("table1", "model.encoder=resnet18"), ("losses",))
"""Experiments whose rows make the README's table, with changed settings."""
COLUMNS = ("data, encoder", "method", "measured by, seeds", "top-1 %", "kNN, top-1 %", "paper, top-1 %")
DPI = 120
MADE_FROM = "made-from"
"""The entry of a picture that says which results it shows."""
FIRST = ("ci", "losses", "fig-k1", "fig-k2", "ssl-cifar100")
SHARED_NOTES = ("Top-1 accuracy on", "± is the", "Differences in", "Gradients:", "Accuracies with")
"""Beginnings of notes that hold for every table. The page states them once, at its end."""
CAVEATS = (
    "What others report",
    "DINO and SwAV",
    "TCL auto plus cross-entropy",
    "Seeds",
    "Stanford Cars",
    "many, medium",
    "Cross-entropy trains",
    "Classes have",
)
"""Beginnings of notes that a reader of the table must not miss."""
MEASURING = "How accuracy is measured"
VARIANTS = {
    "penalty 0.0001": "fast probe, fixed penalty (older runs)",
    "penalty by cross-validation": "fast probe, cross-validated penalty",
    "batch 256": "full probe, batches of 256",
    "batch 128": "full probe, batches of 128",
}
"""Names of measures with several protocols, by the words in which these differ."""

DIFFERENCES = ("difference", "full probe", "kNN", "fast probe", "Recall@1", "seeds")
ANSWERS = {
    REPRODUCED: "Yes: it beats SupCon.",
    PARTLY: "A little over SupCon, if at all.",
    OPEN: "Not clearly over SupCon.",
    NOT: "Not over SupCon.",
}
ABOUT = (
    "Differences in top-1 accuracy in percentage points, on CIFAR-100 with a ResNet-18 unless a row names other data. "
    "± is a 95 % interval over seeds; bold if it excludes 0."
)

HEAD = """# Results

After this page you know which claims of *Tuned Contrastive Learning* ([WACV 2025](https://arxiv.org/abs/2305.10675))
hold in our runs, and how to repeat the runs.

## Does TCL help?

"""
WORDS = """### Words on this page

- *TCL* adds two weights to SupCon: k1 for an extra term over the positives, and k2 for the negatives. Unless other
  values are named, k2 = 1, and k1 = 4000 on CIFAR-100, 5000 on Fashion-MNIST and 500 on digits. The values 4000 and
  5000 are the paper's; 500 is ours. *TCL auto* [chooses both](guide/choosing-k1-k2.md).
- *TCL, three views* learns without labels from three views of each image, with k1 = 1 and k2 = 1.5.
- The *full probe* trains a linear layer on the frozen encoder, with augmented images. It is the paper's measure. The
  accuracy of cross-entropy is that of its own classifier instead.
- The *fast probe* is logistic regression on the encoder's features. *kNN* is a vote of the nearest training images.
  *Recall@1* is the share of images whose nearest neighbor has their class. [Details](#how-accuracy-is-measured).
- An *engine* (`run.engine`) is a way to run training steps. `fused` and `compile` fuse batch norm with its neighbors,
  `graph` and `eager` use PyTorch's kernels.
- Training batches are counted in views. A batch of 256 views has 128 images with two views each.
- [SINCERE](https://arxiv.org/abs/2309.14277), [ε-SupInfoNCE](https://arxiv.org/abs/2211.05568) and
  [DCL](https://arxiv.org/abs/2110.06848) are other losses that change SupCon's denominator."""
CLAIMS = """## Which claims hold

*Open*: our runs cannot decide. An open claim is *untested* if at least one of its settings never ran; the table leaves
these out. For claims of the paper, an
empty last cell means the paper's setting. The paper does not name the encoder and batch size of its figure 3; we assume
a ResNet-50 and 128 views.

"""
RULES = """
### Limits of these verdicts

**Batch norm.** On one GPU, contune trains ResNets with the engine `fused`. Most of the runs above on CIFAR-100 and
Fashion-MNIST used it, and the oldest used `compile`. We also ran TCL {num} times, on {seeds} seeds, with the engines
`graph` and `eager` ([engines](../results/engines)). {torchs} After seeing these accuracies, we left the runs with these
two engines out; in the table of claims, only the row on engines uses them. Two runs of TCL were changed by hand: in one
left-out run, PyTorch's batch norm computed in float32; in one run that counts, addition and ReLU were PyTorch's.

**Versions of the code.** The runs with a ResNet-18 come from several revisions, which each section lists. We did not
repeat all of them with one revision.

**Many comparisons.** The intervals are not corrected for the number of claims. On average, one in 20 such intervals
misses the true value.

"""
JUDGING = """± is a 95 % confidence interval over at least three seeds. If a seed ran more than once, the mean of its
runs counts. The 12 runs on small photo sets count as independent, although three of them share each set. With fewer
seeds on either side, a difference must exceed its 95 % sampling error on the test images. That is about 1.1 points on
CIFAR-100 (1.4 without labels) and 0.6 on Fashion-MNIST.

- *Beats*, and also *helps*, *drops*, *scores below*, *raises the accuracy*, *is more accurate*: judged by each measure
  that the row names. Reproduced if every interval lies above 0, partly if some do, not reproduced if every interval
  lies below 0. In the paper's own setting, an interval that contains 0 counts like one below 0 if it lies below the
  gain that the paper reports. If the protocol of a measure changed, the runs of one protocol count if they cover all
  seeds; otherwise the measure does not count.
- *Beats by 0.93 points*, *by 1.2 points*: partly reproduced if the interval lies above 0 but below this gain.
- *At every batch size* and the like: the interval is that over the settings. With two settings, the less favorable one
  must pass.
- *Beats cross-entropy*: cross-entropy has its own classifier and no full probe. So three comparisons must agree: full
  probe against classifier, kNN, and fast probe.
- *Match*, *similar accuracy*, *give SupCon's accuracy*: reproduced if the interval lies within ± 0.5 points, for our
  own claims within ± 0.3. Not reproduced if the difference exceeds that margin and the interval excludes 0.
- *A is no better than B*, *does not help much*: the same, but A may be much worse. The margin is 0.3 on Fashion-MNIST.
- *Every k1*, *small values of k1*: the k1 that fits the claim least must pass.
- *Reaches*: reproduced down to 0.5 points below the paper's number, partly down to 1.5 points.
- Gradients are means over training. *Raises*: larger at every step of k1 or k2. *Lags*: below 95 % of SupCon's.
  *Vanishes*: the gradient reaches 95 %. If it rises without reaching 95 %, the claim is partly reproduced.
- *The gradient from a hard positive*: the hard ones are the quarter of a batch's positive pairs with the lowest
  similarity. Reproduced if over 99.9 % of them have a larger gradient than SupCon's, partly if most have.
- *On par*: TCL reaches the median of the other methods.
- *Open*: some setting never ran, or no rule applies, for example because the interval contains 0.
- For our hypotheses, *reproduced* reads *holds*.

`contune experiment verdicts` prints this table."""
ACCURACIES = """## Supervised training

The last column has the paper's number for the same data, encoder, batch and epochs; –: there is none.

"""
DIGITS = """## Smoke tests on handwritten digits

These experiments run on a CPU in minutes. They check the code and say little about photos. On digits, TCL with k1 = 500
is not better than SupCon. By the fast probe, TCL without labels is below the median of the other methods. Two of our
hypotheses are about digits: that the paper's k1 = 5000 also beats SupCon there, and that automatic k1 and k2 match
values chosen by hand.
"""
ENDING = """
The full probe (`eval.linear=paper`) follows the paper's text. Its batches are counted in images: 128 on CIFAR-10 and
Fashion-MNIST, and 256 elsewhere. The probe in the code of the paper's authors (`eval.linear=authors`) uses half the
batch size and leaves batch norm in training mode. Its cosine schedule lags by one epoch and ends at 1e-3 instead of 0.

In all tables:

"""


def insert(text: str, name: str, block: str) -> str:
    """`text` with what stands between the two markers of this name replaced."""
    start, end = f"<!-- {name}: made by `make docs` -->", f"<!-- end of {name} -->"
    before, found_start, rest = text.partition(start)
    _, found_end, after = rest.partition(end)
    if not found_start or not found_end:
        raise SystemExit(f"README.md has lost a marker: {start} or {end}")
    return f"{before}{start}\n{unbroken(block)}\n{end}{after}"


def unbroken(text: str) -> str:
    """With spaces in the numbers of tables at which no browser breaks a line."""
    lines = (re.sub(" ([±=]) ", "\u00a0\\1\u00a0", line) if line[:1] == "|" else line for line in text.split("\n"))
    return "\n".join(lines)


def why(benchmarks: Path) -> str:
    """Markdown: what contune is good at, with a measured number each."""
    losses = {row["name"]: row for row in _rows(benchmarks / "loss-h200-32768.json") if row["loss"] == "tcl"}
    ours, papers = losses["contune"], losses["TCL paper's form, mask on device"]
    us_per_view = mean(json.loads((benchmarks / "compare-ff985e8-h200-cifar100.json").read_text())["new"])
    augment = {(row["policy"], row["name"]): row for row in _rows(benchmarks / "augment-cpu-2-cores.json")}
    torchvision = augment["autoaugment", "torchvision (workers)"]
    return _bullets(
        f"**A small and fast loss.** TCL of {ours['n']:,} embeddings takes {ours['ms']:.1f} ms and "
        f"{ours['peak_bytes'] / 2**20:.0f} MiB on one H200, gradient included. Our port of the "
        f"paper's code takes {papers['peak_bytes'] / 2**30:.0f} GiB and at least {papers['ratio']:.0f} times as long.",
        f"**Fast training.** One H200 trains a ResNet-18 on {round(1e6 / us_per_view, -2):,.0f} views (augmented 32×32 "
        "images) per second.",
        f"**Fast augmentation.** On two CPU cores, our AutoAugment is {torchvision['ratio']:.1f} times as fast as "
        "torchvision's with two workers.",
        f"**Baselines included.** TCL, {len(METHODS) - len(ROWS)} other supervised losses and {len(ROWS) - 1} "
        "self-supervised methods share encoder, augmentation and evaluation. Every accuracy here has a file in "
        "`results/`.",
    )


def _bullets(*texts: str) -> str:
    marks: dict[str, Any] = {"initial_indent": "- ", "subsequent_indent": "  ", "break_on_hyphens": False}
    return "\n".join(fill(text, 120, **marks) for text in texts)


def _rows(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(path.read_text())["rows"]
    return rows


def verdict(findings: Sequence[Finding], runs: Results, page: str = "") -> str:
    """Markdown: whether TCL helps, as a sentence, a table of differences and two remarks. page: of the results."""
    shown = [each for each in findings if each.claim.headline and each.num_seeds >= FEW]
    rows = []
    for each in shown:
        cells, pair = dict.fromkeys(DIFFERENCES, "–"), list(each.rows.values())
        for column in each.claim.columns:
            for gap in verdicts.gaps_of(pair, column):
                text = gap.signed
                name = verdicts.measure(pair, column).partition(" against ")[0]
                cells[name] = f"**{text}**" if abs(gap.mean) > (gap.half or 0.0) else text
        counts = re.findall(r"\d+", each.claim.runs) or dict.fromkeys(f"{row.num_seeds}" for row in pair)
        cells |= {"difference": each.claim.headline, "seeds": (" × " if each.claim.runs else " and ").join(counts)}
        rows.append(list(cells.values()))
    gains = Counter(each.verdict for each in findings if each.claim.text.startswith("TCL beats SupCon"))
    verbs = {name: "is" if gains[name] == 1 else "are" for name in (REPRODUCED, PARTLY, NOT, OPEN) if gains[name]}
    found = " and ".join(f"{gains[name]} {verb} {name}" for name, verb in verbs.items())
    papers = f"{summary(findings)[0]} Of {gains.total()} claims that TCL beats SupCon, {found}."
    torchs = torchs_norm(runs)
    norm = (
        f"**Batch norm.** The CIFAR-100 rows have fused batch norm. If {torchs['short']} PyTorch's instead, the first "
        f"row is {torchs['difference']} by full probe. After seeing that, we [left such runs "
        f"out]({page}#limits-of-these-verdicts) of the table."
    )
    claims = f"**The paper's claims.** {papers} [All verdicts]({page}#which-claims-hold)."
    answer = next((ANSWERS[each.verdict] for each in shown), "We do not know yet.")
    about, table = fill(f"**{answer}** {ABOUT}", 120), markdown_table(DIFFERENCES, rows, DIFFERENCES[1:])
    return f"{about}\n\n{table}\n\n{_bullets(norm, claims)}"


def results_table(results: Results, data: str = "") -> str:
    """Markdown: a row for each method, data set (or only one) and encoder of the experiments that are shown."""
    rows: dict[tuple[str, ...], list[str]] = {}
    for name, *changes in SHOWN:
        experiment = find_experiment(name, changes)
        for each in plan.collect(experiment, results):
            if each.results and (name != "losses" or each.num_seeds >= FEW):
                rows.setdefault(tuple(each.results[0]["config"]["method"].items()) + _place(each), _cells(each))
    ordered = [rows[key] for key in sorted(rows, key=lambda key: list(TITLES).index(str(key[-2])))]
    ordered = [cells for cells in ordered if cells[0].startswith(data)]
    places, first = list(dict.fromkeys(cells[0] for cells in ordered)), [CROSS_ENTROPY, SUPCON, TCL, "TCL auto"]
    ordered.sort(key=lambda cells: (places.index(cells[0]), [*first, cells[1]].index(cells[1])))
    return markdown_table(COLUMNS, ordered, [column for column in COLUMNS if column.endswith("%")])


def _place(outcome: Outcome) -> tuple[str, ...]:
    return str(outcome.results[0]["data"]), str(outcome.results[0]["encoder"])


def _cells(outcome: Outcome) -> list[str]:
    data, encoder = _place(outcome)
    method, num = outcome.row.method, outcome.num_seeds
    seeds = f"{num} seed{'s' * (num > 1)}"
    paper = outcome.row.reported.get(PAPER, "–")
    accuracies = [str(outcome.accuracy(column)) for column in (TOP1, KNN)]
    where = f"{TITLES[data]}, {ENCODERS[encoder]}"
    return [where, method, f"{measure_of([outcome])}, {seeds}", *accuracies, f"{paper}"]


def saved_folders(results: Path) -> list[Path]:
    """The folders in results/ that hold an experiment, in the order of the catalogue."""
    found = {path: about["experiment"] for path in sorted(results.glob("*/")) if (about := plan.read_about(path))}
    return sorted(found, key=lambda path: list(EXPERIMENTS).index(found[path]))


@cache
def read_results(results: Path) -> dict[str, plan.Runs]:
    return plan.read_results(results)


@cache
def read_saved(folder: Path) -> tuple[Experiment, list[Outcome]]:
    """The experiment of a saved folder and its outcomes, from its own files and its neighbors'."""
    about = plan.read_about(folder)
    assert about is not None
    experiment = find_experiment(about["experiment"], about["overrides"])
    return experiment, finished(experiment, plan.collect(experiment, read_results(folder.parent)))


def results_page(results: Path, images: Path) -> str:
    """Markdown; `images` is where `draw_figures` puts the figures, below the page."""
    found = read_results(results)
    claims = verdicts.read_claims(results) if (results / "claims.toml").exists() else []
    findings, names = verdicts.find_all(claims, found), protocols(found)
    place = {name: number for number, name in enumerate(FIRST)}
    folders = sorted(saved_folders(results), key=lambda folder: place.get(folder.name, len(place)))
    large, small = ([f for f in folders if f.name.endswith("-digits") == is_small] for is_small in (False, True))
    notes = [note for f in folders for note in make_table(*read_saved(f)).notes if note.startswith(SHARED_NOTES)]
    parts = [
        HEAD + verdict(findings, found),
        WORDS,
        CLAIMS + summary(findings)[1],
        *verdict_tables(findings, results, found),
        ACCURACIES + results_table(found),
    ]
    parts += [section(folder, findings, images, names) for folder in large]
    parts += [DIGITS, *(section(folder, findings, images, names, level="###") for folder in small)] if small else []
    measured = [f"- **{name}**: {text}." for text, name in sorted(names.items(), key=lambda item: item[1])]
    measured = [text.replace("standardised", "standardized").replace("batch-norm", "batch norm") for text in measured]
    shared = [f"- {note}" for note in dict.fromkeys(notes)]
    page = "\n\n".join([*parts, "\n".join([f"## {MEASURING}\n", *measured])])
    return unbroken(page) + "\n" + ENDING + "\n".join(shared) + "\n"


def verdict_tables(findings: Sequence[Finding], results: Path, runs: Results) -> list[str]:
    """The claims that our runs test; folded, the rules, what is not run, and the files behind each."""
    rows = list(zip(findings, verdicts.table(findings), strict=True))
    tested = [row[:-1] for each, row in rows if each.number != NOT_RUN]
    missing = [(row[0], row[1], "some" if each.files else "none", row[-1]) for each, row in rows if row[-1]]
    num_open = sum(each.verdict == OPEN for each in findings)
    files: dict[tuple[Path, ...], str] = {}
    for finding in findings:
        for title, found in finding.files.items():
            files.setdefault(tuple(path.resolve().relative_to(results.resolve()) for path in found), title)
    lines = [
        f"- {title}: " + ", ".join(f"[{path.with_suffix('')}](../results/{path})" for path in paths)
        for paths, title in files.items()
    ]
    rules = RULES.strip().format(**torchs_norm(runs))
    return [
        markdown_table(verdicts.COLUMNS[:-1], tested),
        "\n\n".join(fill(" ".join(text.split()), 120, break_on_hyphens=False) for text in rules.split("\n\n")),
        folded("How we judge claims", JUDGING),
        folded(
            f"Time that {len(missing)} of the {num_open} open claims and hypotheses still need on one H200",
            markdown_table(("claim", "source", "our runs", "more runs, minutes"), missing, ("more runs, minutes",)),
        ),
        folded("The result files behind the verdicts, by experiment and row", "\n".join(lines)),
    ]


def torchs_norm(results: Results) -> dict[str, str]:
    """TCL's runs with torch's batch norm and a ResNet-18: how many, of how many seeds, and TCL − SupCon with them."""
    other, own = (
        {each.row.method: each for each in plan.collect(find_experiment("ci", changes), results)}
        for changes in ((), ("run.engine=graph",))
    )
    tcl, supcon = own[TCL], own[SUPCON] if own[SUPCON].results else other[SUPCON]
    found = tcl.difference(supcon)
    difference = f"{found.signed} points ({min(tcl.num_seeds, supcon.num_seeds)} seeds)" if found else "unknown"
    if own[SUPCON].results:
        text = f"With these engines, the full probe of TCL − SupCon is {difference}."
    else:
        text = (
            f"TCL with `graph` or `eager` minus SupCon with `fused` or `compile` is {difference} by the full probe. "
            "SupCon never ran with these two, so the cause is unknown."
        )
    both = "both use" if own[SUPCON].results else "only TCL uses"
    numbers = {"num": str(len(tcl.results)), "seeds": str(tcl.num_seeds)}
    return {**numbers, "torchs": text, "difference": difference, "short": both}


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
    own = [finding for finding in findings if finding.claim.experiment == command and finding.files]
    own.sort(key=lambda finding: finding.verdict == OPEN)
    files = f"- Result files: [{folder.name}](../results/{folder.name}) and others in `results/` with the same settings"
    details = [files, *(f"- {note}" for note in notes if note not in caveats)]
    alike = [each for each in saved_folders(folder.parent) if read_saved(each)[0].name == experiment.name]
    changes = " ".join(experiment.changes) if len(alike) > 1 else ""
    parts = [
        f"{level} {experiment.title}, {changes}".removesuffix(", "),
        _sentence(own[0]) if own else "",
        f"![Figure of the table below: {experiment.title}]({images.name}/{folder.name}.png)",
        table,
        "\n".join(caveats),
        f"```bash\ncontune experiment {command}\n```",
        folded("Protocols and revisions", "\n".join(details)),
    ]
    return "\n\n".join(part for part in parts if part)


def _sentence(finding: Finding) -> str:
    number = finding.number[0].upper() + finding.number[1:]
    return f"**{verdicts.words_of(finding).capitalize()}:** {finding.claim.text} {number}."


def protocols(results: Results) -> dict[str, str]:
    """The names of all protocols that tables show."""
    found: dict[str, str] = {}
    for result in (result for runs in results.values() for each in runs.values() for result in each):
        for score in result["measures"]:
            if score["name"] in ("linear", "linear-fast", "classifier", "knn"):
                variant = [name for words, name in VARIANTS.items() if words in score["protocol"]]
                found[score["protocol"]] = (variant or [MEASURES[score["name"]].short_title])[0]
    return found


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
