"""The tables of experiments: one table type, and a function for each layout that fills it from outcomes."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from math import isnan, sqrt
from statistics import mean
from typing import NamedTuple

from contune.eval.measures import FAST, KNN, LINEAR, TOP1
from contune.experiments.plan import PAPER, SUPCON, Experiment, Outcome, protocols_differ
from contune.report.page import duration
from contune.report.statistics import PairedDifference, Spread

NOTHING = "–"
GRADIENTS = {"positive_gradient": "gradient from positives", "negative_gradient": "gradient from negatives"}
"""Keys of logged curves, and their titles."""
THEOREM_1 = "theorem1_share"
SUPCONS = f"{SUPCON}'s on these batches"


class Cell(NamedTuple):
    text: str
    bold: bool = False


@dataclass(frozen=True, kw_only=True)
class Table:
    title: str
    columns: tuple[str, ...]
    """The first column names the rows."""
    groups: tuple[tuple[tuple[Cell, ...], ...], ...]
    """Rows of cells. The second group, if there is one, has baselines or differences."""
    texts: tuple[str, ...] = ()
    """Columns after the first that hold words. The others hold numbers and are right-aligned."""
    notes: tuple[str, ...] = ()
    """How the numbers were measured."""

    @property
    def rows(self) -> list[tuple[Cell, ...]]:
        return [row for group in self.groups for row in group]

    @property
    def numbers(self) -> tuple[str, ...]:
        return tuple(column for column in self.columns[1:] if column not in self.texts)

    def markdown(self) -> str:
        rule = ["---:" if column in self.numbers else "---" for column in self.columns]
        cells = [[f"**{cell.text}**" if cell.bold else cell.text for cell in row] for row in self.rows]
        lines = ["| " + " | ".join(row) + " |" for row in [self.columns, rule, *cells]]
        return "\n".join([*lines, *(["", *(f"- {note}" for note in self.notes)] if self.notes else [])]) + "\n"


def make_table(experiment: Experiment, outcomes: Sequence[Outcome]) -> Table:
    table = TABLES[experiment.layout](experiment, outcomes)
    return replace(table, notes=(*table.notes, *experiment.notes))


def methods_table(experiment: Experiment, outcomes: Sequence[Outcome]) -> Table:
    """A row per method, baselines last. Columns in which no row has anything are left out."""
    baseline = _best([each for each in outcomes if each.row.is_baseline], LINEAR)
    sources = dict.fromkeys(source for each in outcomes for source in each.row.reported)
    columns: dict[str, Callable[[Outcome], str]] = {"linear %": lambda each: _text(each.accuracy(LINEAR))}
    if baseline is not None:
        columns[f"vs {baseline.row.title.lower()}"] = lambda each: _distance(each, baseline)
    columns |= {
        "kNN %": lambda each: _text(each.accuracy(KNN)),
        "online probe %": lambda each: _text(each.last_logged("online_top1"), "{:.2%}").rstrip("%"),
        "epochs": lambda each: _values(each, "epochs"),
        "views": lambda each: ", ".join(
            _unique(r["config"]["augment"]["views"] for r in _trained(each) if r["epochs"])
        ),
        "seeds": lambda each: str(len(_trained(each)) or ""),
        **{source: _reported(source, outcomes) for source in sources},
        "training": lambda each: duration(seconds) if (seconds := _seconds(each)) else "",
        "remark": Outcome.remark,
    }
    columns = {
        title: text for title, text in columns.items() if any(text(each) not in ("", NOTHING) for each in outcomes)
    }
    methods = [each for each in outcomes if not each.row.is_baseline]
    best = {"linear %": _best(methods, LINEAR), "kNN %": _best(methods, KNN)}
    groups = [
        tuple(
            (
                Cell(each.row.title),
                *(
                    Cell(text(each) or ("" if title == "remark" else NOTHING), each is best.get(title))
                    for title, text in columns.items()
                ),
            )
            for each in outcomes
            if each.row.is_baseline == is_baseline
        )
        for is_baseline in (False, True)
    ]
    return Table(
        title=experiment.title,
        columns=("method", *columns),
        groups=tuple(group for group in groups if group),
        texts=("remark",),
        notes=tuple(_notes(outcomes, (LINEAR, KNN))),
    )


def grid_table(experiment: Experiment, outcomes: Sequence[Outcome]) -> Table:
    """Methods by data sets or by values of a setting, with the paper's numbers; below, differences of neighbors."""
    cells = by_place(outcomes)
    methods, places = _unique(key[0] for key in cells), _unique(key[1] for key in cells)
    quoted = {place for (_, place), each in cells.items() if PAPER in each.row.reported}

    def line(title: str, own: Callable[[str], Cell], papers: Callable[[str], str]) -> tuple[Cell, ...]:
        pairs = [[own(place), *([Cell(papers(place))] if place in quoted else [])] for place in places]
        return (Cell(title), *(cell for pair in pairs for cell in pair))

    def method_line(method: str) -> tuple[Cell, ...]:
        rivals = {place: [each for key, each in cells.items() if key[1] == place] for place in places}
        return line(
            method,
            lambda place: _accuracy(cells.get((method, place)), rivals[place]),
            lambda place: _paper(cells.get((method, place))),
        )

    def difference_line(lower: str, upper: str) -> tuple[Cell, ...]:
        return line(
            f"{upper} − {lower}",
            lambda place: Cell(_difference(cells.get((upper, place)), cells.get((lower, place)))),
            lambda place: _paper_difference(cells.get((upper, place)), cells.get((lower, place)), "+.1f"),
        )

    groups = [tuple(map(method_line, methods)), tuple(difference_line(*pair) for pair in pairwise(methods))]
    return Table(
        title=experiment.title,
        columns=(
            f"by {experiment.setting}" if experiment.setting else "method",
            *(title for place in places for title in (place, *([PAPER] if place in quoted else []))),
        ),
        groups=tuple(group for group in groups if group),
        notes=tuple(_notes(outcomes, (TOP1,))),
    )


def seeds_table(experiment: Experiment, outcomes: Sequence[Outcome]) -> Table:
    """Methods over many seeds: means with intervals; below, the paired difference of every two and its test."""
    measures = {TOP1: "top-1 %", FAST: "fast probe %", KNN: "kNN %"}
    if not protocols_differ(outcomes):
        del measures[FAST]
    quoted = any(PAPER in each.row.reported for each in outcomes)
    methods, differences = [], []
    for each in outcomes:
        others = [Cell(_text(each.accuracy(column)) or NOTHING) for column in list(measures)[1:]]
        half = "" if each.row.reported_half is None else f" ± {each.row.reported_half:g}"
        paper = f"{each.row.reported[PAPER]:g}{half}" if PAPER in each.row.reported else NOTHING
        counts = [Cell(str(len(each.results))), Cell(NOTHING), *([Cell(paper)] if quoted else [])]
        methods.append((Cell(each.row.method), _accuracy(each, outcomes), *others, *counts))
    for lower, upper in combinations(outcomes, 2):
        found = upper.difference(lower)
        texts = [_text(upper.difference(lower, column)) or NOTHING for column in measures]
        texts += [str(found.num), p_text(found.p)] if found is not None else [NOTHING, NOTHING]
        texts += [_paper_difference(upper, lower, "+.2f")] if quoted else []
        differences.append((Cell(f"{upper.row.method} − {lower.row.method}"), *map(Cell, texts)))
    notes = _notes(outcomes, tuple(measures))
    if any(len(each.results) > 1 for each in outcomes):
        notes.append(
            "Differences are paired by seed, with their 95 % confidence interval. p: two-sided paired t-test of top-1, "
            "not corrected for several comparisons."
        )
    return Table(
        title=experiment.title,
        columns=("", *measures.values(), "seeds", "p", *([PAPER] if quoted else [])),
        groups=(tuple(methods), tuple(differences)),
        notes=tuple(notes),
    )


def gradients_table(experiment: Experiment, outcomes: Sequence[Outcome]) -> Table:
    """A row per setting of k1 and k2: accuracy, and the mean gradients from positives and negatives over training.

    Runs with other settings are in other states of training. The effect of k1 and k2 alone is the difference between a
    run's gradient and SupCon's on the same batches, which every run logs.
    """
    supcon = next((each for each in outcomes if each.row.method == SUPCON), None)
    quoted = any(PAPER in each.row.reported for each in outcomes)
    logged = [key for key in GRADIENTS if any(each.curve(key) for each in outcomes)]
    with_theorem = any(each.curve(THEOREM_1) for each in outcomes)
    lines = []
    for each in outcomes:
        difference = NOTHING if each is supcon else _difference(each, supcon)
        cells = [_accuracy(each, outcomes), Cell(str(len(each.results))), Cell(difference)]
        cells += [Cell(_paper(each))] if quoted else []
        for key in logged:
            on_same_batches = NOTHING if each is supcon else _mean(each, f"supcon_{key}")
            cells += [Cell(_mean(each, key)), Cell(on_same_batches)]
        cells += [Cell(_mean(each, THEOREM_1, scale=100))] if with_theorem else []
        lines.append((Cell(each.row.title), *cells))
    notes = _notes(outcomes, (TOP1,))
    if any(
        supcon is not None and each.results and each.by_seed().keys() != supcon.by_seed().keys() for each in outcomes
    ):
        notes.append(f"vs {SUPCON}: paired by seed; empty if the two rows have different seeds.")
    if logged:
        notes += [
            "Gradients: the mean response of an anchor to its positives (equation 16) and negatives (lemmas 1 and 2), "
            "averaged over the batch and over all of training.",
            f"{SUPCONS}: {SUPCON}'s formula on that run's batches. The difference is the effect of k1 and k2 alone.",
        ]
    if with_theorem:
        notes.append(f"Theorem 1 holds: the share of positive pairs with a larger gradient than {SUPCON}'s.")
    return Table(
        title=experiment.title,
        columns=(
            *("loss", "top-1 %", "seeds", f"vs {SUPCON}", *([PAPER] if quoted else [])),
            *(title for key in logged for title in (GRADIENTS[key], SUPCONS)),
            *(["theorem 1 holds, %"] if with_theorem else []),
        ),
        groups=(tuple(lines),),
        notes=tuple(notes),
    )


TABLES: dict[str, Callable[[Experiment, Sequence[Outcome]], Table]] = {
    "methods": methods_table,
    "grid": grid_table,
    "sweep": grid_table,
    "seeds": seeds_table,
    "k1": gradients_table,
    "k2": gradients_table,
}


def by_place(outcomes: Iterable[Outcome]) -> dict[tuple[str, str], Outcome]:
    """By method and data set or value, without data sets that are not on this disk."""
    return {(each.row.method, each.row.at): each for each in outcomes if each.results or not each.absent}


def p_text(p: float | None) -> str:
    if p is None:
        return NOTHING
    return "< 0.0001" if p < 1e-4 else f"{p:.2g}"


def _text(value: Spread | PairedDifference | float | None, form: str = "{}") -> str:
    """With a minus that is as wide as a plus."""
    return "" if value is None else form.format(value).replace("-", "−")


def _accuracy(outcome: Outcome | None, rivals: Iterable[Outcome]) -> Cell:
    """Top-1, in bold if it is the highest of several rivals, and a remark such as that some runs are missing."""
    if outcome is None:
        return Cell(NOTHING)
    spread, remark = outcome.accuracy(), outcome.remark()
    if spread is None:
        return Cell(remark or NOTHING)
    means = [found.mean for rival in rivals if (found := rival.accuracy()) is not None]
    return Cell(f"{spread} ({remark})" if remark else str(spread), len(means) > 1 and spread.mean == max(means))


def _difference(upper: Outcome | None, lower: Outcome | None) -> str:
    """Paired by seed. Empty if the rows have different seeds, whose means the table shows."""
    if upper is None or lower is None or upper.by_seed().keys() != lower.by_seed().keys():
        return NOTHING
    return _text(upper.difference(lower)) or NOTHING


def _paper(outcome: Outcome | None) -> str:
    return f"{outcome.row.reported[PAPER]:.1f}" if outcome is not None and PAPER in outcome.row.reported else NOTHING


def _paper_difference(upper: Outcome | None, lower: Outcome | None, form: str) -> str:
    numbers = [each.row.reported.get(PAPER) if each is not None else None for each in (upper, lower)]
    return NOTHING if None in numbers else _text(numbers[0] - numbers[1], f"{{:{form}}}")  # type: ignore[operator]


def _distance(outcome: Outcome, baseline: Outcome) -> str:
    own, height = outcome.accuracy(LINEAR), baseline.accuracy(LINEAR)
    return "" if own is None or height is None or outcome is baseline else _text(own.mean - height.mean, "{:+.2f}")


def _best(outcomes: Iterable[Outcome], column: str) -> Outcome | None:
    scored = [(spread.mean, each) for each in outcomes if (spread := each.accuracy(column))]
    return max(scored, key=lambda pair: pair[0], default=(0.0, None))[1]


def _reported(source: str, outcomes: Iterable[Outcome]) -> Callable[[Outcome], str]:
    """With as many decimals as they give."""
    numbers = [each.row.reported[source] for each in outcomes if source in each.row.reported]
    decimals = max(len(f"{number:g}".partition(".")[2]) for number in numbers)
    return lambda each: _text(each.row.reported.get(source), f"{{:.{decimals}f}}")


def _mean(outcome: Outcome, key: str, scale: float = 1.0) -> str:
    found = outcome.curve(key)
    return NOTHING if found is None or isnan(found.mean) else f"{scale * found.mean:.3g}"


def _trained(outcome: Outcome) -> tuple[dict, ...]:  # type: ignore[type-arg]
    """The runs of a row that is about features; raw pixels are not trained."""
    return () if outcome.row.pixels else outcome.results


def _seconds(outcome: Outcome) -> float:
    return mean([result["seconds"] for result in _trained(outcome)] or [0.0])


def _values(outcome: Outcome, key: str) -> str:
    return ", ".join(_unique(result[key] for result in _trained(outcome) if key in result))


def _unique(values: Iterable[object]) -> list[str]:
    return list(dict.fromkeys(map(str, values)))


def _notes(outcomes: Sequence[Outcome], columns: Sequence[str]) -> list[str]:
    """How the numbers were measured, on what, and what went wrong."""
    results = [result for each in outcomes for result in each.results]
    notes = []
    if results:
        counts = {len(each.scores(columns[0])) for each in outcomes if not each.row.pixels}
        intervals = " ± is the 95 % confidence interval over seeds (Student's t)." if max(counts) > 1 else ""
        splits = ", ".join(_unique(result["split"] for result in results))
        notes.append(f"Top-1 on the {splits} split after the last epoch; the highest in bold.{intervals}")
        notes += _one_seed(outcomes, columns[0]) if 1 in counts else []
        notes += [note for column in columns for note in _protocols(outcomes, column)]
        if LINEAR in columns:
            if any(each.last_logged("online_top1") is not None for each in outcomes):
                notes.append("online probe: scored on training views, so not comparable with the other columns.")
        else:
            notes += [*_fact("Encoder", "encoder", outcomes), *_fact("Epochs of training", "epochs", outcomes)]
        notes += _fact("Hardware", "hardware", outcomes)
        if any(str(result["hardware"]).startswith("cpu") for result in results):
            notes.append("On a CPU, another number of threads changes accuracies as much as another seed does.")
        notes += [*_fact("Revision of contune", "git_revision", outcomes), *_fact("Notes of runs", "note", outcomes)]
    for reason in _unique(each.absent for each in outcomes if each.absent):
        names = _unique(each.row.at or each.row.title for each in outcomes if each.absent == reason)
        notes.append(f"Left out: {', '.join(names)}; {reason}.")
    return [*notes, *(sentence for each in outcomes for sentence in each.problems())]


def _one_seed(outcomes: Iterable[Outcome], column: str) -> list[str]:
    """How much chance there is in one seed: at least that of a finite number of images."""
    scores = [found[0][1] for each in outcomes if len(found := each.scores(column)) == 1]
    top1, num = mean(score["top1"] for score in scores), scores[0]["num_images"]
    error = sqrt(top1 * (100 - top1) / num)
    return [f"Rows with one seed: {top1:.0f} % of {num:,} images has a standard error of {error:.1f} points."]


def _protocols(outcomes: Iterable[Outcome], column: str) -> list[str]:
    """How a column was measured; top-1 goes by another protocol for some methods."""
    owners: dict[str, list[str]] = {}
    for outcome in outcomes:
        for protocol in outcome.protocols(column) if not outcome.row.pixels else []:
            owners.setdefault(protocol, []).append(outcome.row.method)
    if column == TOP1:
        return [f"{', '.join(_unique(methods))}: {protocol}." for protocol, methods in owners.items()]
    title = {LINEAR: "linear", FAST: "fast probe", KNN: "kNN"}[column]
    return [f"{title}: {', '.join(owners)}."] if owners else []


def _fact(title: str, key: str, outcomes: Sequence[Outcome]) -> list[str]:
    """What the results have under `key`; if it is not the same for all, which runs have which value."""
    owners: dict[str, dict[str, list[str]]] = {}
    for outcome in outcomes:
        for result in _trained(outcome):
            runs = owners.setdefault(str(result.get(key) or ""), {})
            runs.setdefault(outcome.row.title, []).append(str(result["seed"]))
    if len(owners) == 1:
        return [f"{title}: {value}." for value in owners if value]
    num_seeds = {each.row.title: len(each.results) for each in outcomes}
    parts = []
    for value, runs in owners.items():
        names = [
            name if len(seeds) == num_seeds[name] else f"{name} (seed {', '.join(seeds)})"
            for name, seeds in runs.items()
        ]
        parts += [f"{value}: {'; '.join(names)}"] if value else []
    return [f"{title}. {'. '.join(parts)}."] if parts else []
