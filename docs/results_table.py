"""The README's numbers, verdict on TCL and table of results, from the files in results/ and benchmarks/results/."""

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from math import sqrt
from pathlib import Path
from statistics import mean, variance
from textwrap import fill
from typing import Any

from scipy.stats import t  # type: ignore[import-untyped]  # comes with scikit-learn, without stubs

from contune.config import Config
from contune.eval.measures import FAST, KNN, TOP1, judged_by
from contune.experiments.plan import settings_key
from contune.recipes.paper import Setting, paper_settings
from contune.recipes.ssl import ROWS
from contune.report.statistics import Spread, paired

METHODS = {"tcl": "TCL", "supcon": "SupCon", "cross-entropy": "cross-entropy"}
METHODS |= {name: row.title for name, row in ROWS.items() if name != "tcl-ssl"}
DATA = {"cifar100": "CIFAR-100", "cifar10": "CIFAR-10", "fmnist": "Fashion-MNIST", "imagenet100": "ImageNet-100"}
ENCODERS = {"resnet18": "ResNet-18", "resnet50": "ResNet-50"}
COLUMNS = ("data, encoder", "method", "top-1 %", "measure, seeds", "kNN top-1 %", "paper")
FILE_COLUMNS = ("data, encoder", "method", "epochs", "training", "files")
SHARED = "at a time shared"
"""The words of a note on a run that was not alone on its machine."""
SETTING = "cifar100-{method}-resnet18-seed*.json"
OTHER_ENGINES = ("eager", "graph", "float32-norm", "fp32", "unfused")
"""TCL runs of the same setting that benchmarks/results/ holds as train-ENGINE-resnet18-seedN.json."""

Result = dict[str, Any]
Run = tuple[Path, Result]


def insert(text: str, name: str, block: str) -> str:
    """`text` with what stands between the two markers of this name replaced."""
    start, end = f"<!-- {name}: made by `make docs` -->", f"<!-- end of {name} -->"
    before, found_start, rest = text.partition(start)
    _, found_end, after = rest.partition(end)
    if not found_start or not found_end:
        raise SystemExit(f"README.md has lost a marker: {start} or {end}")
    return f"{before}{start}\n{block}\n{end}{after}"


def read_results(folder: Path, pattern: str = "*.json") -> list[Run]:
    return [(path, json.loads(path.read_text())) for path in sorted(folder.glob(pattern))]


# Why contune


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


def _rows(path: Path) -> list[Result]:
    rows: list[Result] = json.loads(path.read_text())["rows"]
    return rows


# Does TCL help?


def verdict(results: Path, benchmarks: Path) -> str:
    """Markdown: TCL against SupCon and cross-entropy, over paired seeds and over every finished run."""
    tcl, supcon, entropy = (
        [result for _, result in read_results(results, SETTING.format(method=method))]
        for method in ("tcl", "supcon", "cross-entropy")
    )
    again = results / "one-revision"
    all_tcl = tcl + [result for _, result in read_results(again, SETTING.format(method="tcl"))]
    all_supcon = supcon + [result for _, result in read_results(again, SETTING.format(method="supcon"))]
    for engine in OTHER_ENGINES:
        all_tcl += [result for _, result in read_results(benchmarks, f"train-{engine}-resnet18-seed*.json")]
    seeds = difference(tcl, supcon)
    every = welch([score(result) for result in all_tcl], [score(result) for result in all_supcon])
    large = [read_results(results, f"cifar100-{method}-resnet50-seed0.json")[0][1] for method in ("tcl", "supcon")]
    own, knn, fast = (difference(tcl, entropy, column) for column in (TOP1, KNN, FAST))
    large_tcl, large_supcon = map(score, large)
    num, num_all = f"{len(tcl)} paired seeds", f"{len(all_tcl)} TCL, {len(all_supcon)} SupCon"
    return _bullets(
        f"**Against SupCon, ResNet-18: {word(every)}.** Over {num}, TCL − SupCon is {signed(seeds)} points by the full "
        f"probe. Over all {len(all_tcl) + len(all_supcon)} finished runs ({num_all}) the difference is {signed(every)}"
        f"{'.' if decided(every) else ', so they cannot be separated.'}",
        f"**Against SupCon, ResNet-50: {'better' if large_tcl > large_supcon else 'not better'}.** By the full probe, "
        f"TCL reaches {large_tcl:.2f} % and SupCon {large_supcon:.2f} %, one seed each.",
        f"**Against cross-entropy, ResNet-18: {word(own)}.** TCL's full probe scores {signed(own)} points over "
        f"cross-entropy's own classifier ({num}). By kNN the difference is {signed(knn)}, by the fast probe "
        f"{signed(fast)}.",
    )


def score(result: Result, column: str = TOP1) -> float:
    found = judged_by(result, column)
    assert found is not None, f"a run without {column}"
    return float(found["top1"])


def difference(ours: Sequence[Result], theirs: Sequence[Result], column: str = TOP1) -> Spread:
    """Paired by seed."""
    pairs = [(a, b) for a in ours for b in theirs if a["seed"] == b["seed"]]
    return Spread(*paired([score(a, column) for a, _ in pairs], [score(b, column) for _, b in pairs])[:2])


def welch(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """The difference of two means, with the 95 % interval of Welch's t-test."""
    a, b = variance(ours) / len(ours), variance(theirs) / len(theirs)
    freedom = (a + b) ** 2 / (a**2 / (len(ours) - 1) + b**2 / (len(theirs) - 1))
    return Spread(mean(ours) - mean(theirs), float(t.ppf(0.975, freedom)) * sqrt(a + b))


def decided(spread: Spread) -> bool:
    """Whether 0 is outside the interval."""
    return abs(spread.mean) > (spread.half or 0.0)


def word(spread: Spread) -> str:
    return "open" if not decided(spread) else "better" if spread.mean > 0 else "worse"


def signed(spread: Spread) -> str:
    return f"{spread.mean:+.2f} ± {spread.half:.2f}".replace("-", "−")


# The table


def results_table(folder: Path) -> str:
    """Markdown: one row for each set of runs that differ in their seed only."""
    return _table(COLUMNS, (_cells([result for _, result in group]) for group in group_by_settings(folder)))


def files_table(folder: Path) -> str:
    """Markdown: the files, epochs and training times of the same rows."""
    return _table(FILE_COLUMNS, map(_file_cells, group_by_settings(folder)))


def group_by_settings(folder: Path) -> list[list[Run]]:
    """Runs that differ in nothing but their seed, together; digits last."""
    groups: dict[str, list[Run]] = defaultdict(list)
    for path, result in read_results(folder):
        groups[settings_key(result) or path.name].append((path, result))
    return sorted(groups.values(), key=lambda group: _place(group[0][1]))


def _place(result: Result) -> tuple[Any, ...]:
    data, methods = [*DATA, "digits"], list(METHODS)
    method = result["method"]
    place = methods.index(method) if method in methods else len(methods)
    where = data.index(result["data"]) if result["data"] in data else len(data)
    return where, not _uses_labels(result), result["encoder"], result["epochs"], place, method


def _cells(results: Sequence[Result]) -> list[str]:
    first = results[0]
    num = len(results)
    return [
        *_names(first),
        str(Spread.of([score(result) for result in results])),
        f"{measure_name(first)}, {num} seed{'s' * (num > 1)}",
        str(Spread.of([score(result, KNN) for result in results])),
        _paper(first),
    ]


def _file_cells(group: Sequence[Run]) -> list[str]:
    results = [result for _, result in group]
    probe = f" + {results[0]['config']['eval']['linear_epochs']}" if measure_name(results[0]) == "full probe" else ""
    files = ", ".join(f"[seed {result['seed']}](../results/{path.name})" for path, result in group)
    return [
        *_names(results[0]),
        f"{results[0]['epochs']}{probe}",
        f"{_minutes(results)}, {results[0]['hardware']}",
        files,
    ]


def _names(result: Result) -> list[str]:
    data, encoder, method = (str(result[key]) for key in ("data", "encoder", "method"))
    without_labels = "" if _uses_labels(result) else ", no labels"
    return [f"{DATA.get(data, data)}, {ENCODERS.get(encoder, encoder)}", METHODS.get(method, method) + without_labels]


def measure_name(result: Result) -> str:
    """Of the measure that a run is judged by."""
    found = judged_by(result, TOP1)
    assert found is not None
    name = str(found["name"])
    return {"linear": "full probe", "linear-fast": "fast probe"}.get(name, name)


def protocols(folder: Path) -> dict[str, str]:
    """The names of all protocols in the files below a folder; with the data set where a name has several."""
    found: dict[str, tuple[str, str]] = {}
    for _, result in read_results(folder, "**/*.json"):
        for column in (TOP1, FAST, KNN) if "measures" in result else ():
            measure = judged_by(result, column)
            name = measure_name(result) if column == TOP1 else "fast probe" if column == FAST else "kNN"
            if measure is not None:
                data = str(result["data"])
                found.setdefault(measure["protocol"], (name, DATA.get(data, data)))
    names = [name for name, _ in found.values()]
    return {
        protocol: f"{name} on {data}" if names.count(name) > 1 else name for protocol, (name, data) in found.items()
    }


def _minutes(results: Sequence[Result]) -> str:
    """The mean of runs that had the machine to themselves, if any."""
    alone = [result["seconds"] for result in results if SHARED not in result.get("note", "")]
    seconds = alone or [result["seconds"] for result in results]
    return f"{mean(seconds) / 60:.1f} min" + ("" if alone else " on a shared device")


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


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [columns, ["---"] * len(columns), *rows])
