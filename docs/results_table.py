"""The README's numbers, verdicts and table of results, from the files in results/ and benchmarks/results/."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

from contune.eval.measures import KNN, TOP1
from contune.experiments import Outcome, find_experiment, plan
from contune.experiments.plan import PAPER, Results
from contune.experiments.verdicts import MEASURES, NOT, NOT_RUN, OPEN, PARTLY, REPRODUCED, Finding, summary
from contune.recipes.ssl import ROWS

DATA = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "fmnist": "Fashion-MNIST", "imagenet100": "ImageNet-100"}
ENCODERS = {"resnet18": "ResNet-18", "resnet50": "ResNet-50"}
SHOWN = (("table1",), ("table1", "model.encoder=resnet18"), ("losses",))
"""Experiments whose rows make the README's table, with changed settings."""
COLUMNS = ("data, encoder", "method", "top-1 %", "measure, runs", "kNN top-1 %", "paper")


def insert(text: str, name: str, block: str) -> str:
    """`text` with what stands between the two markers of this name replaced."""
    start, end = f"<!-- {name}: made by `make docs` -->", f"<!-- end of {name} -->"
    before, found_start, rest = text.partition(start)
    _, found_end, after = rest.partition(end)
    if not found_start or not found_end:
        raise SystemExit(f"README.md has lost a marker: {start} or {end}")
    return f"{before}{start}\n{block}\n{end}{after}"


def why(benchmarks: Path) -> str:
    """Markdown: what contune is good at, with a measured number each."""
    loss = {(row["loss"], row["name"]): row for row in _rows(benchmarks / "loss-h200-32768.json")}
    ours, theirs = loss["supcon", "contune"], loss["supcon", "SupContrast form"]
    train = {row["stage"]: row for row in _rows(benchmarks / "train-h200-engines.json")}["training, fused"]
    augment = {(row["policy"], row["name"]): row for row in _rows(benchmarks / "augment-cpu-2-cores.json")}
    torchvision = augment["autoaugment", "torchvision (workers)"]
    return _bullets(
        f"**No N×N matrix.** At N = {ours['n']:,} on one H200 the SupCon loss with its gradient takes "
        f"{ours['ms']:.1f} ms and {ours['peak_bytes'] / 2**20:.0f} MiB. SupContrast's code takes "
        f"{theirs['ratio']:.0f} times as long and {theirs['peak_bytes'] / 2**30:.0f} GiB.",
        f"**Training at the speed of the encoder.** One H200 trains a ResNet-18 on "
        f"{round(train['views_per_second'], -2):,.0f} views of 32 pixels per second, "
        f"{100 * train['of_bound']:.0f} % of what the encoder alone reaches.",
        f"**Fast augmentation.** On two CPU cores AutoAugment is {torchvision['ratio']:.1f} times as fast as "
        "torchvision with two workers. On a GPU it is one Triton kernel.",
        f"**Fair comparisons.** {len(ROWS)} self-supervised methods share one protocol, next to SupCon, SINCERE, "
        "cross-entropy and others. Every accuracy names its measure, seeds and result file.",
    )


def _bullets(*texts: str) -> str:
    marks: dict[str, Any] = {"initial_indent": "- ", "subsequent_indent": "  ", "break_on_hyphens": False}
    return "\n".join(fill(text, 118, **marks) for text in texts)


def _rows(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(path.read_text())["rows"]
    return rows


def verdict(findings: Sequence[Finding]) -> str:
    """Markdown: the findings that answer whether TCL helps."""
    words = {REPRODUCED: "better", PARTLY: "better by some measures", NOT: "not better", OPEN: "undecided"}
    texts = []
    for each in findings:
        if each.claim.headline and each.number != NOT_RUN:
            upper, lower = (title.split(",")[0] for title in each.claim.rows)
            texts.append(f"**{each.claim.headline}: {words[each.verdict]}.** {upper} − {lower} is {each.number}.")
    return _bullets(*texts, f"**The paper's claims.** {summary(findings)}")


def results_table(results: Results) -> str:
    """Markdown: a row for each method, data set and encoder of the experiments that are shown."""
    rows: dict[tuple[str, ...], list[str]] = {}
    for name, *changes in SHOWN:
        experiment = find_experiment(name).changed(changes)
        for each in plan.collect(experiment, results):
            if each.results:
                rows.setdefault(tuple(each.results[0]["config"]["method"].items()) + _place(each), _cells(each))
    return markdown_table(COLUMNS, [rows[key] for key in sorted(rows, key=lambda key: list(DATA).index(str(key[-2])))])


def _place(outcome: Outcome) -> tuple[str, ...]:
    return str(outcome.results[0]["data"]), str(outcome.results[0]["encoder"])


def _cells(outcome: Outcome) -> list[str]:
    data, encoder = _place(outcome)
    (name,) = {score["name"] for _, score in outcome.scores(TOP1)}
    method, num = outcome.row.method, len(outcome.results)
    runs = f"{num} run{'s' * (num > 1)}"
    paper = outcome.row.reported.get(PAPER, "–")
    accuracies = [str(outcome.accuracy(column)) for column in (TOP1, KNN)]
    where = f"{DATA[data]}, {ENCODERS[encoder]}"
    return [where, method, accuracies[0], f"{MEASURES[name].removeprefix('the ')}, {runs}", accuracies[1], f"{paper}"]


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [columns, ["---"] * len(columns), *rows])
