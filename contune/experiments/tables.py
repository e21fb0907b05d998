"""The tables of experiments: one table type, and a function for each layout that fills it from outcomes."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from pathlib import Path
from statistics import mean

from contune.eval.measures import (
    FAST,
    KNN,
    LINEAR,
    MEASURES,
    ONLINE,
    PIXELS,
    RECALL,
    RETRIEVAL,
    TOP1,
    columns_of_imbalance,
    judged_by,
)
from contune.experiments.plan import PAPER, SUPCON, Experiment, Outcome, protocols_differ
from contune.report.statistics import FEW

NOTHING = "–"
FACTS_OF_ROWS, FACTS_OF_RUNS = ("encoder", "epochs"), ("hardware", "git_revision")
"""Entries of result.json that a table's notes name."""
GRADIENTS = {"positive_gradient": "gradient from positives", "negative_gradient": "gradient from negatives"}
DIFFERENCES = (
    "Differences in tables of accuracies need three seeds of both methods. If both have the same seeds, they are "
    "paired. Otherwise the interval is Welch's."
)
RESPONSES = (
    "Gradients: the mean over training of the coefficients of positives (the paper's equation 16) and of negatives "
    f"(lemmas 1 and 2). 100 % is {SUPCON}'s coefficient for the same embeddings. The last column has the share of "
    f"positives with a larger coefficient than {SUPCON}'s, as theorem 1 claims."
)
SHOTS = "many, medium, few: top-1 of classes with over 100, 20 to 100 and below 20 training images."

Filled = tuple[dict[str, list[str]], list[str]]
"""The cells of a table by the titles of its columns, and its notes."""


@dataclass(frozen=True, kw_only=True)
class Table:
    columns: Sequence[str]
    """The first column names the rows, the others are numbers."""
    rows: Sequence[Sequence[str]]
    """Cells in Markdown: the best is **bold**."""
    notes: Sequence[str]
    """How the numbers were measured."""

    def markdown(self) -> str:
        table = markdown_table(self.columns, self.rows, self.columns[1:])
        return "\n".join([table, "", *(f"- {note}" for note in self.notes)]) + "\n"


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[str] = ()) -> str:
    """Columns in `numbers` are right-aligned."""
    rule = ["---:" if column in numbers else "---" for column in columns]
    return "\n".join("| " + " | ".join(row) + " |" for row in [columns, rule, *rows])


def make_table(experiment: Experiment, outcomes: Sequence[Outcome]) -> Table:
    cells, notes = TABLES[experiment.layout](experiment, outcomes)
    return Table(columns=[*cells], rows=[*zip(*cells.values(), strict=True)], notes=[*notes, *experiment.notes])


def methods_table(experiment: Experiment, outcomes: Sequence[Outcome]) -> Filled:
    """A row per method, baselines last. Columns in which no row has anything are left out."""
    methods = [each for each in outcomes if not each.row.is_baseline]
    rows = sorted(outcomes, key=lambda each: each.row.is_baseline)
    cells = {"method": [f"{each.row.title} ({each.remark()})".removesuffix(" ()") for each in rows]}
    for column in (LINEAR, KNN, ONLINE):
        accuracies = [_accuracy(each, [] if each.row.is_baseline else methods, column) for each in rows]
        cells[_title(outcomes, column)] = accuracies
    for source in dict.fromkeys(source for each in outcomes for source in each.row.reported):
        cells[f"{source}, top-1 %"] = [str(each.row.reported.get(source, NOTHING)) for each in rows]
    return {title: texts for title, texts in cells.items() if {*texts} != {NOTHING}}, _notes(outcomes, (LINEAR, KNN))


def grid_table(experiment: Experiment, outcomes: Sequence[Outcome]) -> Filled:
    """Data sets or values of a setting by methods, the difference of the last two methods, and the paper's numbers."""
    found, methods, places = by_place(outcomes)
    here = {place: [found[method, place] for method in methods if (method, place) in found] for place in places}
    cells = {experiment.setting: places}
    for method in methods:
        own = [found[key] for key in found if key[0] == method]
        texts = [_accuracy(found.get((method, place)), here[place]) for place in places]
        cells[f"{method}, {_title(own)}"] = texts
    for lower, upper in list(pairwise(methods))[-1:]:
        texts = [_difference(found.get((upper, place)), found.get((lower, place))) for place in places]
        cells[f"{upper} − {lower}, points"] = texts
    if any(PAPER in each.row.reported for each in outcomes):
        papers = [[each.row.reported[PAPER] for each in here[place] if PAPER in each.row.reported] for place in places]
        cells[f"{PAPER}, top-1 %"] = [" / ".join(f"{top1:.1f}" for top1 in each) or NOTHING for each in papers]
    return cells, _notes(outcomes, (TOP1,))


def compared(outcomes: Sequence[Outcome]) -> list[tuple[Outcome, Outcome]]:
    """Every two methods with enough seeds; of more than three, each with the first, `TCL, sampler` with `TCL`."""
    outcomes = [each for each in outcomes if not each.row.is_baseline]
    plain = {each.row.method: each for each in outcomes}
    pairs = [(plain.get(each.row.method.rpartition(", ")[0], outcomes[0]), each) for each in outcomes[1:]]
    pairs = list(combinations(outcomes, 2)) if len(outcomes) <= 3 else pairs
    return [pair for pair in pairs if min(each.num_seeds for each in pair) >= FEW]


def seeds_table(experiment: Experiment, outcomes: Sequence[Outcome]) -> Filled:
    """Methods over many seeds: means with intervals; below, differences, by every shared measure."""
    differ, pairs = protocols_differ(outcomes) and not experiment.measures, compared(outcomes)
    measures = experiment.measures or (TOP1, *([FAST] if differ else []), KNN)
    shots = columns_of_imbalance(score for each in outcomes for score in each.scores())[1:]
    shots = shots if len(shots) > 1 else []
    measures = measures[:1] if shots else measures  # six columns at most
    names = [f"{each.row.method} ({measure_of([each])})".removesuffix(" ()") for each in outcomes]
    names = names if differ else [each.row.method for each in outcomes]
    cells = {"method": [*names, *(f"{upper.row.method} − {lower.row.method}" for lower, upper in pairs)]}
    for column in measures:
        differences = [upper.difference(lower, column) for lower, upper in pairs]
        texts = [NOTHING if found is None else found.signed for found in differences]
        cells[_title(outcomes, column)] = [*(_accuracy(each, outcomes, column) for each in outcomes), *texts]
    for shot in shots:
        values = [[score[shot] for score in each.scores() if shot in score] for each in outcomes]
        texts = [f"{mean(found):.1f}" if found else NOTHING for found in values]
        cells[f"{shot} %"] = [*texts, *[NOTHING] * len(pairs)]
    counts = [dict.fromkeys(str(each.num_seeds) for each in (upper, lower)) for lower, upper in pairs]
    cells["seeds"] = [*(str(each.num_seeds) for each in outcomes), *map(" and ".join, counts)]
    return cells, [*_notes(outcomes, measures), *([DIFFERENCES] if pairs else []), *([SHOTS] if shots else [])]


def gradients_table(experiment: Experiment, outcomes: Sequence[Outcome]) -> Filled:
    """A row per setting of k1 and k2: accuracy, and the mean gradients from positives and negatives over training.

    Runs with other settings are in other states of training. The effect of k1 and k2 alone is the ratio of a run's
    gradient to SupCon's on the same batches, which every run logs.
    """
    supcon = next((each for each in outcomes if each.row.method == SUPCON), None)
    cells = {"loss": [each.row.title for each in outcomes]}
    cells[_title(outcomes)] = [_accuracy(each, outcomes) for each in outcomes]
    cells[f"difference from {SUPCON}, points"] = [
        NOTHING if each is supcon else _difference(each, supcon) for each in outcomes
    ]
    for key, title in GRADIENTS.items():
        texts = [NOTHING if each is supcon else _percent(each, key, f"supcon_{key}") for each in outcomes]
        cells[f"{title}, % of {SUPCON}'s"] = texts
    shares = [_percent(each, "theorem1_share") for each in outcomes]
    cells[f"positives with a larger gradient than {SUPCON}'s, %"] = shares
    papers = [f"{each.row.title} {each.row.reported[PAPER]:g} %" for each in outcomes if PAPER in each.row.reported]
    return cells, [*_notes(outcomes, (TOP1,)), *([f"The paper has: {'; '.join(papers)}."] if papers else []), RESPONSES]


TABLES: dict[str, Callable[[Experiment, Sequence[Outcome]], Filled]] = {
    "methods": methods_table,
    "grid": grid_table,
    "sweep": grid_table,
    "seeds": seeds_table,
    "k1": gradients_table,
    "k2": gradients_table,
}


def by_place(outcomes: Iterable[Outcome]) -> tuple[dict[tuple[str, str], Outcome], list[str], list[str]]:
    """By method and place; all methods, all places."""
    cells = {(each.row.method, each.row.at): each for each in outcomes}
    return cells, list(dict.fromkeys(key[0] for key in cells)), list(dict.fromkeys(key[1] for key in cells))


def measure_of(outcomes: Iterable[Outcome], column: str = TOP1) -> str:
    """`full probe`, or `classifier or full probe` if outcomes differ; empty without runs."""
    names = (score["name"].removeprefix(PIXELS) for each in outcomes for score in each.scores(column))
    return " or ".join(dict.fromkeys((MEASURES | RETRIEVAL)[name].short_title.removesuffix(" %") for name in names))


def _title(outcomes: Iterable[Outcome], column: str = TOP1) -> str:
    """Of a column of accuracies."""
    return "Recall@1, %" if column == RECALL else f"{measure_of(outcomes, column)}, top-1 %".removeprefix(", ")


def _accuracy(outcome: Outcome | None, rivals: Iterable[Outcome], column: str = TOP1) -> str:
    """In bold if it is the highest of the rivals. Top-1 with a remark, such as that some runs are missing."""
    spread, remark = None, ""
    if outcome is not None:
        spread, remark = outcome.accuracy(column), outcome.remark() if column == TOP1 else ""
    if spread is None:
        return remark or NOTHING
    means = [found.mean for rival in rivals if (found := rival.accuracy(column)) is not None]
    text = f"{spread} ({remark})" if remark else str(spread)
    return f"**{text}**" if means and spread.mean == max(means) else text


def _difference(upper: Outcome | None, lower: Outcome | None) -> str:
    """Empty for too few seeds."""
    if upper is None or lower is None or min(upper.num_seeds, lower.num_seeds) < FEW:
        return NOTHING
    found = upper.difference(lower)
    return NOTHING if found is None else found.signed


def _percent(outcome: Outcome, key: str, of: str | None = None) -> str:
    """A logged value over training, as a percentage of another one or of 1."""
    value, base = outcome.mean_logged(key), 1.0 if of is None else outcome.mean_logged(of)
    return NOTHING if value is None or base is None else f"{100 * value / base:.{0 if of is None else 1}f}"


def _notes(outcomes: Sequence[Outcome], columns: Sequence[str]) -> list[str]:
    """How the numbers were measured, on what, and what went wrong."""
    results = [result for each in outcomes for result in each.results]
    notes = []
    if results:
        notes.append(
            f"Top-1 accuracy on the {results[0]['split']} split after the last epoch. "
            "In tables of accuracies, bold marks the highest mean, which may be chance."
        )
        if any(each.num_seeds >= FEW for each in outcomes):
            notes.append(
                "± is the 95 % confidence interval over seeds (Student's t), for three or more. "
                "If a seed ran more than once, the mean of its runs counts."
            )
        if any(each.num_seeds < FEW for each in outcomes if each.results):
            notes.append("Accuracies with two decimals and without ± have one or two seeds.")
        notes += _facts(outcomes, columns)
    return [*notes, *(sentence for each in outcomes for sentence in each.problems())]


def _facts(outcomes: Sequence[Outcome], columns: Sequence[str]) -> list[str]:
    """What holds for most rows, and the exceptions."""
    rows_with: dict[str, dict[str, dict[str, None]]] = {}
    trained = [(each.row.title, result) for each in outcomes for result in each.trained]
    for row, result in trained:
        facts = {_title(outcomes, column): (judged_by(result, column) or {}).get("protocol") for column in columns}
        facts |= {name: result.get(name) for name in FACTS_OF_ROWS}
        for title, value in facts.items():
            if value:
                rows_with.setdefault(title.removesuffix(", top-1 %"), {}).setdefault(str(value), {})[row] = None
    notes = []
    for title, values in rows_with.items():
        (most, _), *others = sorted(values.items(), key=lambda item: -len(item[1]))
        texts = [f"{value} for {' and '.join(rows)}" for value, rows in others]
        if sum(len(rows) for _, rows in others) > 3:  # too many to name
            texts = [f"{', '.join(value for value, _ in others)} for other rows"]
        notes.append(f"{title}: {most}{''.join(f' ({text})' for text in texts)}.")
    for name in FACTS_OF_RUNS:
        found = dict.fromkeys(str(result[name]) for _, result in trained if result.get(name))
        notes += [f"{name.replace('_', ' ')}: {', '.join(found)}."] if found else []
    remarks = [result.get("note", "").split("; ") for _, result in trained]
    for (row, result), parts in zip(trained, remarks, strict=True):
        notes += [f"{row}, {Path(result['file']).stem}: {part}." for part in parts if part.startswith("changed")]
    if trained and all(parts == remarks[0] for parts in remarks):  # of all runs
        notes += [f"{part}." for part in remarks[0] if part and "shared" not in part]
    return notes
