"""The tables of experiments: one table type, and a function for each layout that fills it from outcomes."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import sqrt
from statistics import mean

from contune.eval.measures import FAST, KNN, LINEAR, TOP1, judged_by
from contune.experiments.plan import PAPER, SUPCON, Experiment, Outcome, Result, protocols_differ
from contune.report.page import duration

NOTHING = "–"
TITLES = {TOP1: "top-1 %", LINEAR: "linear %", FAST: "fast probe %", KNN: "kNN %"}
GRADIENTS = {"positive_gradient": "gradient from positives", "negative_gradient": "gradient from negatives"}
THEOREM_1 = "theorem1_share"
DIFFERENCES = (
    "Differences are paired by seed; where a seed was run several times, all runs count (Welch's interval). p: "
    "two-sided t-test of top-1, not corrected for several comparisons."
)
RESPONSES = (
    "Gradients: the mean response of an anchor to its positives (equation 16) and negatives (lemmas 1 and 2) over "
    f"training, in percent of {SUPCON}'s formula on the same batches. Theorem 1 holds: the share of positives above "
    f"{SUPCON}'s."
)


@dataclass(frozen=True, kw_only=True)
class Table:
    columns: tuple[str, ...]
    """The first column names the rows."""
    rows: tuple[tuple[str, ...], ...]
    """Cells in Markdown: the best is **bold**."""
    notes: tuple[str, ...]
    """How the numbers were measured."""

    @property
    def numbers(self) -> tuple[str, ...]:
        """Columns that are right-aligned."""
        return self.columns[1:]

    def markdown(self) -> str:
        rule = ["---:" if column in self.numbers else "---" for column in self.columns]
        lines = ["| " + " | ".join(row) + " |" for row in [self.columns, rule, *self.rows]]
        return "\n".join([*lines, "", *(f"- {note}" for note in self.notes)]) + "\n"


def make_table(experiment: Experiment, outcomes: Sequence[Outcome]) -> Table:
    table = TABLES[experiment.layout](experiment, outcomes)
    return replace(table, notes=(*table.notes, *experiment.notes))


def methods_table(experiment: Experiment, outcomes: Sequence[Outcome]) -> Table:
    """A row per method, baselines last. Columns in which no row has anything are left out."""
    sources = dict.fromkeys(source for each in outcomes for source in each.row.reported)
    columns: dict[str, Callable[[Outcome], object]] = {
        TITLES[LINEAR]: lambda each: each.accuracy(LINEAR),
        TITLES[KNN]: lambda each: each.accuracy(KNN),
        "online probe %": lambda each: _last_logged(each, "online_top1"),
        **{source: lambda each, source=source: each.row.reported.get(source) for source in sources},  # type: ignore[misc]
    }
    columns = {title: value for title, value in columns.items() if any(map(value, outcomes))}
    ordered = sorted(outcomes, key=lambda each: each.row.is_baseline)
    methods = [each for each in outcomes if not each.row.is_baseline]
    best = {TITLES[column]: _best(methods, column) for column in (LINEAR, KNN)}
    rows = []
    for each in ordered:
        cells = {title: _text(value(each)) for title, value in columns.items()}
        bold = {title: f"**{cells[title]}**" for title in cells if each is best.get(title)}
        rows.append((f"{each.row.title} ({each.remark()})".removesuffix(" ()"), *(cells | bold).values()))
    notes = tuple(_notes(outcomes, (LINEAR, KNN)))
    return Table(columns=("method", *columns), rows=tuple(rows), notes=notes)


def grid_table(experiment: Experiment, outcomes: Sequence[Outcome]) -> Table:
    """Data sets or values of a setting by methods, the difference of the last two methods, and the paper's numbers."""
    cells, methods, places = by_place(outcomes)
    quoted = any(PAPER in each.row.reported for each in cells.values())
    rows = []
    for place in places:
        here = [cells.get((method, place)) for method in methods]
        texts = [_accuracy(each, [rival for rival in here if rival]) for each in here]
        papers = [f"{each.row.reported[PAPER]:.1f}" for each in here if each and PAPER in each.row.reported]
        more = [" / ".join(papers) or NOTHING] if quoted else []
        rows.append((place, *texts, *([_difference(here[-1], here[-2])] if len(here) > 1 else []), *more))
    columns = [*methods, *([f"{methods[-1]} − {methods[-2]}"] if len(methods) > 1 else []), *([PAPER] * quoted)]
    return Table(
        columns=(experiment.setting or "data", *columns), rows=tuple(rows), notes=tuple(_notes(outcomes, (TOP1,)))
    )


def compared(outcomes: Sequence[Outcome]) -> list[tuple[Outcome, Outcome]]:
    """Every two methods; of more than three, each with the first."""
    return list(combinations(outcomes, 2)) if len(outcomes) <= 3 else [(outcomes[0], each) for each in outcomes[1:]]


def seeds_table(experiment: Experiment, outcomes: Sequence[Outcome]) -> Table:
    """Methods over many runs: means with intervals; below, differences and their tests, by every shared measure."""
    measures = [TOP1, *([FAST] if protocols_differ(outcomes) else []), KNN]
    rows = []
    for each in outcomes:
        texts = [*(_text(each.accuracy(column)) for column in measures[1:]), str(len(each.results)), NOTHING]
        rows.append((each.row.method, _accuracy(each, outcomes), *texts))
    for lower, upper in compared(outcomes):
        found = upper.difference(lower)
        texts = [_text(upper.difference(lower, column)) for column in measures]
        p = NOTHING if found is None or found.p is None else f"{found.p:.2g}"
        rows.append((f"{upper.row.method} − {lower.row.method}", *texts, str(found.num) if found else NOTHING, p))
    notes = _notes(outcomes, measures)
    if any(len(each.results) > 1 for each in outcomes):
        notes.append(DIFFERENCES)
    return Table(
        columns=("", *(TITLES[column] for column in measures), "runs", "p"), rows=tuple(rows), notes=tuple(notes)
    )


def gradients_table(experiment: Experiment, outcomes: Sequence[Outcome]) -> Table:
    """A row per setting of k1 and k2: accuracy, and the mean gradients from positives and negatives over training.

    Runs with other settings are in other states of training. The effect of k1 and k2 alone is the ratio of a run's
    gradient to SupCon's on the same batches, which every run logs.
    """
    supcon = next((each for each in outcomes if each.row.method == SUPCON), None)
    rows = []
    for each in outcomes:
        texts = [NOTHING if each is supcon else _difference(each, supcon)]
        texts += [NOTHING if each is supcon else _percent(each, key, f"supcon_{key}") for key in GRADIENTS]
        rows.append((each.row.title, _accuracy(each, outcomes), *texts, _percent(each, THEOREM_1)))
    papers = [f"{each.row.title} {each.row.reported[PAPER]:g} %" for each in outcomes if PAPER in each.row.reported]
    notes = [*_notes(outcomes, (TOP1,)), *([f"The paper has: {'; '.join(papers)}."] if papers else []), RESPONSES]
    gradients = [f"{title}, % of {SUPCON}'s" for title in GRADIENTS.values()]
    columns = ("loss", TITLES[TOP1], f"− {SUPCON}", *gradients, "theorem 1 holds, %")
    return Table(columns=columns, rows=tuple(rows), notes=tuple(notes))


TABLES: dict[str, Callable[[Experiment, Sequence[Outcome]], Table]] = {
    "methods": methods_table,
    "grid": grid_table,
    "sweep": grid_table,
    "seeds": seeds_table,
    "k1": gradients_table,
    "k2": gradients_table,
}


def by_place(outcomes: Iterable[Outcome]) -> tuple[dict[tuple[str, str], Outcome], list[str], list[str]]:
    """By method and place; all methods, all places. Data sets that are not on this disk are left out."""
    cells = {(each.row.method, each.row.at): each for each in outcomes if each.results or not each.absent}
    return cells, list(dict.fromkeys(key[0] for key in cells)), list(dict.fromkeys(key[1] for key in cells))


def _text(value: object) -> str:
    """With a minus that is as wide as a plus."""
    return NOTHING if value in (None, "", 0) else str(value).replace("-", "−")


def _accuracy(outcome: Outcome | None, rivals: Iterable[Outcome]) -> str:
    """Top-1, in bold if it is the highest of several rivals, and a remark such as that some runs are missing."""
    spread, remark = (None, "") if outcome is None else (outcome.accuracy(), outcome.remark())
    if spread is None:
        return remark or NOTHING
    means = [found.mean for rival in rivals if (found := rival.accuracy()) is not None]
    text = f"{spread} ({remark})" if remark else str(spread)
    return f"**{text}**" if len(means) > 1 and spread.mean == max(means) else text


def _difference(upper: Outcome | None, lower: Outcome | None) -> str:
    """Empty if the rows have different seeds, whose means the table shows."""
    if upper is None or lower is None or upper.by_seed().keys() != lower.by_seed().keys():
        return NOTHING
    return _text(upper.difference(lower))


def _best(outcomes: Iterable[Outcome], column: str) -> Outcome | None:
    scored = [(spread.mean, each) for each in outcomes if (spread := each.accuracy(column))]
    return max(scored, key=lambda pair: pair[0], default=(0.0, None))[1]


def _last_logged(outcome: Outcome, metric: str) -> str | None:
    found = [result["last_logged"][metric] for result in outcome.trained if metric in result.get("last_logged", {})]
    return f"{100 * mean(found):.2f}" if found else None


def _percent(outcome: Outcome, key: str, of: str | None = None) -> str:
    """A logged value over training, as a percentage of another one or of 1."""
    found = [each for name in (key, of) if name is not None and (each := outcome.curve(name)) is not None]
    means = [mean(value for value in values if value == value) for _, values in found]  # not nan
    return f"{100 * means[0] / (means[1] if of else 1):.0f}" if len(means) == (2 if of else 1) else NOTHING


def _notes(outcomes: Sequence[Outcome], columns: Sequence[str]) -> list[str]:
    """How the numbers were measured, on what, and what went wrong."""
    results = [result for each in outcomes for result in each.results]
    notes = []
    if results:
        notes.append(f"Top-1 on the {results[0]['split']} split after the last epoch; the highest in bold.")
        singles = [found[0][1] for each in outcomes if len(found := each.scores(columns[0])) == 1]
        if any(len(each.trained) > 1 for each in outcomes):
            notes.append("± is the 95 % confidence interval over runs (Student's t).")
        if singles:
            top1, num = mean(score["top1"] for score in singles), singles[0]["num_images"]
            half = 1.96 * sqrt(top1 * (100 - top1) / num)
            notes.append(f"One run: ± {half:.1f} points is the 95 % interval of {top1:.0f} % of {num:,} images.")
        for column in columns:
            title = TITLES[column].removesuffix(" %")
            notes += _fact(title, outcomes, lambda r, column=column: (judged_by(r, column) or {}).get("protocol", ""))  # type: ignore[misc]
        for key in ("encoder", "epochs", "hardware", "git_revision", "note"):
            notes += _fact(key.replace("_", " "), outcomes, lambda result, key=key: str(result.get(key) or ""))  # type: ignore[misc]
        times = [
            f"{each.row.title} {duration(mean(r['seconds'] for r in each.trained))}"
            for each in outcomes
            if each.trained
        ]
        notes.append(f"Training time, mean: {'; '.join(times)}.")
    for reason in dict.fromkeys(each.absent for each in outcomes if each.absent):
        names = ", ".join(dict.fromkeys(each.row.at or each.row.title for each in outcomes if each.absent == reason))
        notes.append(f"Left out: {names}; {reason}.")
    return [*notes, *(sentence for each in outcomes for sentence in each.problems())]


def _fact(title: str, outcomes: Sequence[Outcome], value_of: Callable[[Result], str]) -> list[str]:
    """What holds for the results; if it is not the same for all, a note per value with the rows that have it."""
    owners: dict[str, dict[str, None]] = {}
    for outcome in outcomes:
        for result in outcome.trained:
            owners.setdefault(value_of(result), {})[outcome.row.title] = None
    everyone = {outcome.row.title for outcome in outcomes if outcome.trained}
    return [
        f"{title}: {value}." if {*rows} == everyone else f"{title}: {value} – {'; '.join(rows)}."
        for value, rows in owners.items()
        if value
    ]
