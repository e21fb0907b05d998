"""The table of results in the README, from the files in results/."""

import json
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from statistics import mean
from typing import Any

from contune.config import Config
from contune.experiments.plan import settings_key
from contune.recipes.paper import Setting, paper_settings
from contune.recipes.ssl import ROWS
from contune.report.statistics import Spread

START, END = "<!-- results: made by `make docs` -->", "<!-- end of results -->"
METHODS = {"tcl": "TCL", "supcon": "SupCon", "cross-entropy": "cross-entropy"}
METHODS |= {name: row.title for name, row in ROWS.items() if name != "tcl-ssl"}
DATA = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "fmnist": "Fashion-MNIST", "imagenet100": "ImageNet-100"}
COLUMNS = ("data", "method", "encoder", "epochs", "top-1 %", "measured by", "kNN %", "the paper", "training", "files")
SHARED = "at a time shared"
"""The words of a note by which a run was not alone on its machine."""

Result = dict[str, Any]


def insert(text: str, table: str) -> str:
    """`text` with what stands between the two markers replaced."""
    before, start, rest = text.partition(START)
    _, end, after = rest.partition(END)
    if not start or not end:
        raise SystemExit(f"README.md has lost a marker of its table: {START} or {END}")
    return f"{before}{START}\n{table}\n{END}{after}"


def results_table(folder: Path) -> str:
    """Markdown: one row for each set of runs that differ in their seed only, then what the words in it mean."""
    groups = group_by_settings(read_results(folder))
    protocols: dict[str, tuple[str, str]] = {}
    lines = [_row(COLUMNS), _row(["---"] * len(COLUMNS))]
    lines += [_row(_cells(group, protocols)) for group in groups]
    lines += ["", "Measured on the test split, after the last epoch."]
    return "\n".join([*lines, *_meanings(protocols), *_notes(groups)])


def read_results(folder: Path) -> list[tuple[Path, Result]]:
    return [(path, json.loads(path.read_text())) for path in sorted(folder.glob("*.json"))]


def group_by_settings(results: Iterable[tuple[Path, Result]]) -> list[list[tuple[Path, Result]]]:
    """Runs that differ in nothing but their seed, together; ordered by data set, encoder, length and method."""
    groups: dict[str, list[tuple[Path, Result]]] = defaultdict(list)
    for path, result in results:
        groups[settings_key(result) or path.name].append((path, result))
    return sorted(groups.values(), key=lambda group: _place(group[0][1]))


def _place(result: Result) -> tuple[Any, ...]:
    methods = list(METHODS)
    method = result["method"]
    place = methods.index(method) if method in methods else len(methods)
    return result["data"], not _uses_labels(result), result["encoder"], result["epochs"], place, method


def _cells(group: list[tuple[Path, Result]], protocols: dict[str, tuple[str, str]]) -> list[str]:
    """Puts into `protocols` what its measures are called and on which data they were first met."""
    results = [result for _, result in group]
    first = results[0]
    measured = next(name for name in ("classifier", "linear", "knn") if f"{name}_top1" in first)
    short = _short_name(measured, first)
    data = DATA.get(str(first["data"]), str(first["data"]))
    protocols.setdefault(first[f"{measured}_protocol"], (short, data))
    protocols.setdefault(first["knn_protocol"], ("kNN", data))
    probe_epochs = f" + {first['config']['eval']['linear_epochs']}" if short == "full probe" else ""
    without_labels = "" if _uses_labels(first) else ", no labels"
    return [
        data,
        METHODS.get(str(first["method"]), str(first["method"])) + without_labels,
        first["encoder"],
        f"{first['epochs']}{probe_epochs}",
        str(Spread.of([result[f"{measured}_top1"] for result in results])),
        short,
        str(Spread.of([result["knn_top1"] for result in results])),
        _paper(first),
        f"{_minutes(results)}, {first['hardware']}",
        ", ".join(f"[seed {result['seed']}](results/{path.name})" for path, result in group),
    ]


def _meanings(protocols: dict[str, tuple[str, str]]) -> list[str]:
    """The data set is said where a word has several meanings."""
    shorts = [short for short, _ in protocols.values()]
    lines = [
        f"- *{short}*{f' on {data}' if shorts.count(short) > 1 else ''}: {protocol}."
        for protocol, (short, data) in protocols.items()
    ]
    return sorted(lines, key=lambda line: shorts.index(line.split("*")[1]))


def _minutes(results: list[Result]) -> str:
    """The mean of those that had the machine to themselves, if any: the others say how many shared it."""
    alone = [result["seconds"] for result in results if SHARED not in result.get("note", "")]
    seconds = alone or [result["seconds"] for result in results]
    return f"{mean(seconds) / 60:.1f} min" + ("" if alone else " beside others")


def _short_name(measured: str, result: Result) -> str:
    if measured != "linear":
        return {"classifier": "classifier", "knn": "kNN"}[measured]
    return "full probe" if result["config"]["eval"]["linear"] == "paper" else "fast probe"


def _paper(result: Result) -> str:
    setting = Setting(
        data=result["data"],
        encoder=result["encoder"],
        method=result["method"],
        labels=_uses_labels(result),
        epochs=result["epochs"],
    )
    reported = paper_settings().get(setting)
    return "–" if reported is None else f"{reported.top1} (table {reported.table})"


def _uses_labels(result: Result) -> bool:
    return Config.from_dict(result["config"]).method.settings.needs_labels


def _notes(groups: list[list[tuple[Path, Result]]]) -> list[str]:
    """Who shared a machine with how many is in the files; the table says that they did."""
    by_note: dict[str, list[str]] = defaultdict(list)
    for path, result in (run for group in groups for run in group):
        if result.get("note") and SHARED not in result["note"]:
            by_note[result["note"]].append(path.stem)
    return [f"- Note on {', '.join(names)}: {note}." for note, names in by_note.items()]


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"
