"""The tables of experiments: one table type, and a function for each layout that fills it from outcomes."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from math import sqrt
from statistics import mean

from contune.eval.measures import FAST, KNN, LINEAR, TOP1, judged_by
from contune.experiments.plan import PAPER, SUPCON, Experiment, Outcome, Result, protocols_differ
from contune.report.page import duration

NOTHING = "–"
TITLES = {TOP1: "top-1 %", LINEAR: "linear %", FAST: "fast probe %", KNN: "kNN %"}
GRADIENTS = {"positive_gradient": "gradient from positives", "negative_gradient": "gradient from negatives"}
THEOREM_1 = "theorem1_share"
SUPCONS = f"{SUPCON}'s on these batches"


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
        return tuple(column for column in self.columns[1:] if column != "remark")

    def markdown(self) -> str:
        rule = ["---:" if column in self.numbers else "---" for column in self.columns]
        lines = ["| " + " | ".join(row) + " |" for row in [self.columns, rule, *self.rows]]
        return "\n".join([*lines, "", *(f"- {note}" for note in self.notes)]) + "\n"


def make_table(experiment: Experiment, outcomes: Sequence[Outcome]) -> Table:
    table = TABLES[experiment.layout](experiment, outcomes)
    return replace(table, notes=(*table.notes, *experiment.notes))


def methods_table(experiment: Experiment, outcomes: Sequence[Outcome]) -> Table:
    """A row per method, baselines last. Columns in which no row has anything are left out."""
    methods, baselines = ([o for o in outcomes if o.row.is_baseline == is_baseline] for is_baseline in (False, True))
    sources = dict.fromkeys(source for each in outcomes for source in each.row.reported)
    columns: dict[str, Callable[[Outcome], object]] = {TITLES[LINEAR]: lambda each: each.accuracy(LINEAR)}
    if (baseline := _best(baselines, LINEAR)) is not None:
        columns[f"vs {baseline.row.title.lower()}"] = lambda each: _distance(each, baseline)
    columns |= {
        TITLES[KNN]: lambda each: each.accuracy(KNN),
        "online probe %": lambda each: _last_logged(each, "online_top1"),
        "epochs": lambda each: _join(result["epochs"] for result in each.trained),
        "views": lambda each: _join(r["config"]["augment"]["views"] for r in each.trained if r["epochs"]),
        "seeds": lambda each: len(each.trained),
        **{source: lambda each, source=source: each.row.reported.get(source) for source in sources},  # type: ignore[misc]
        "training": lambda each: duration(sec) if (sec := mean([r["seconds"] for r in each.trained] or [0])) else "",
        "remark": Outcome.remark,
    }
    columns = {title: value for title, value in columns.items() if any(map(value, outcomes))}
    best = {TITLES[column]: _best(methods, column) for column in (LINEAR, KNN)}
    rows = []
    for each in (*methods, *baselines):
        cells = {title: _text(value(each)) for title, value in columns.items()}
        bold = {title: f"**{cells[title]}**" for title in cells if each is best.get(title)}
        rows.append((each.row.title, *(cells | bold).values()))
    notes = tuple(_notes(outcomes, (LINEAR, KNN)))
    return Table(columns=("method", *columns), rows=tuple(rows), notes=notes)


def grid_table(experiment: Experiment, outcomes: Sequence[Outcome]) -> Table:
    """Methods by data sets or by values of a setting, with the paper's numbers; below, differences of neighbors."""
    cells, methods, places = by_place(outcomes)
    quoted = {place for (_, place), each in cells.items() if PAPER in each.row.reported}
    rows = []
    for method in methods:
        row = [method]
        for place in places:
            each, rivals = cells.get((method, place)), [found for key, found in cells.items() if key[1] == place]
            row += [_accuracy(each, rivals), *([_paper(each)] if place in quoted else [])]
        rows.append(tuple(row))
    for lower, upper in pairwise(methods):
        row = [f"{upper} − {lower}"]
        for place in places:
            pair = cells.get((upper, place)), cells.get((lower, place))
            row += [_difference(*pair), *([_paper_difference(*pair, ".1f")] if place in quoted else [])]
        rows.append(tuple(row))
    columns = [title for place in places for title in (place, *([PAPER] if place in quoted else []))]
    first = f"by {experiment.setting}" if experiment.setting else "method"
    notes = tuple(_notes(outcomes, (TOP1,)))
    return Table(columns=(first, *columns), rows=tuple(rows), notes=notes)


def compared(outcomes: Sequence[Outcome]) -> list[tuple[Outcome, Outcome]]:
    """Every two methods; of more than three, each with the first."""
    return list(combinations(outcomes, 2)) if len(outcomes) <= 3 else [(outcomes[0], each) for each in outcomes[1:]]


def seeds_table(experiment: Experiment, outcomes: Sequence[Outcome]) -> Table:
    """Methods over many seeds: means with intervals; below, paired differences and their tests."""
    measures = [TOP1, *([FAST] if protocols_differ(outcomes) else []), KNN]
    quoted = [PAPER] if any(PAPER in each.row.reported for each in outcomes) else []
    rows = []
    for each in outcomes:
        half = "" if each.row.reported_half is None else f" ± {each.row.reported_half:g}"
        paper = f"{each.row.reported[PAPER]:g}{half}" if PAPER in each.row.reported else NOTHING
        texts = [*(_text(each.accuracy(column)) for column in measures[1:]), str(len(each.results)), NOTHING]
        rows.append((each.row.method, _accuracy(each, outcomes), *texts, *(paper for _ in quoted)))
    for lower, upper in compared(outcomes):
        found = upper.difference(lower)
        texts = [_text(upper.difference(lower, column)) for column in measures]
        texts += [NOTHING if found is None else str(found.num)]
        texts += [NOTHING if found is None or found.p is None else f"{found.p:.2g}"]
        texts += [_paper_difference(upper, lower, ".2f") for _ in quoted]
        rows.append((f"{upper.row.method} − {lower.row.method}", *texts))
    notes = _notes(outcomes, measures)
    if any(len(each.results) > 1 for each in outcomes):
        notes.append(
            "Differences are paired by seed, with their 95 % confidence interval. p: two-sided paired t-test of top-1, "
            "not corrected for several comparisons."
        )
    columns = ("", *(TITLES[column] for column in measures), "seeds", "p", *quoted)
    return Table(columns=columns, rows=tuple(rows), notes=tuple(notes))


def gradients_table(experiment: Experiment, outcomes: Sequence[Outcome]) -> Table:
    """A row per setting of k1 and k2: accuracy, and the mean gradients from positives and negatives over training.

    Runs with other settings are in other states of training. The effect of k1 and k2 alone is the difference between a
    run's gradient and SupCon's on the same batches, which every run logs.
    """
    supcon = next((each for each in outcomes if each.row.method == SUPCON), None)
    quoted = [PAPER] if any(PAPER in each.row.reported for each in outcomes) else []
    logged = [key for key in GRADIENTS if any(each.curve(key) for each in outcomes)]
    theorem = ["theorem 1 holds, %"] if any(each.curve(THEOREM_1) for each in outcomes) else []
    rows = []
    for each in outcomes:
        texts = [str(len(each.results)), NOTHING if each is supcon else _difference(each, supcon)]
        texts += [_paper(each) for _ in quoted]
        for key in logged:
            texts += [_mean(each, key), NOTHING if each is supcon else _mean(each, f"supcon_{key}")]
        texts += [_mean(each, THEOREM_1, scale=100) for _ in theorem]
        rows.append((each.row.title, _accuracy(each, outcomes), *texts))
    notes = _notes(outcomes, (TOP1,))
    notes.append(f"vs {SUPCON}: paired by seed; empty if the two rows have different seeds.")
    notes.append(
        "Gradients: the mean response of an anchor to its positives (equation 16) and negatives (lemmas 1 and 2), "
        f"averaged over the batch and over training. {SUPCONS}: {SUPCON}'s formula on the batches of that run; the "
        f"difference is the effect of k1 and k2 alone. Theorem 1 holds: the share of positives above {SUPCON}'s."
    )
    gradients = [title for key in logged for title in (GRADIENTS[key], SUPCONS)]
    columns = ("loss", TITLES[TOP1], "seeds", f"vs {SUPCON}", *quoted, *gradients, *theorem)
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


def _join(values: Iterable[object]) -> str:
    return ", ".join(dict.fromkeys(map(str, values)))


def _accuracy(outcome: Outcome | None, rivals: Iterable[Outcome]) -> str:
    """Top-1, in bold if it is the highest of several rivals, and a remark such as that some runs are missing."""
    spread, remark = (None, "") if outcome is None else (outcome.accuracy(), outcome.remark())
    if spread is None:
        return remark or NOTHING
    means = [found.mean for rival in rivals if (found := rival.accuracy()) is not None]
    text = f"{spread} ({remark})" if remark else str(spread)
    return f"**{text}**" if len(means) > 1 and spread.mean == max(means) else text


def _difference(upper: Outcome | None, lower: Outcome | None) -> str:
    """Paired by seed. Empty if the rows have different seeds, whose means the table shows."""
    if upper is None or lower is None or upper.by_seed().keys() != lower.by_seed().keys():
        return NOTHING
    return _text(upper.difference(lower))


def _paper(outcome: Outcome | None) -> str:
    return f"{outcome.row.reported[PAPER]:.1f}" if outcome is not None and PAPER in outcome.row.reported else NOTHING


def _paper_difference(upper: Outcome | None, lower: Outcome | None, form: str) -> str:
    numbers = [each.row.reported[PAPER] for each in (upper, lower) if each is not None and PAPER in each.row.reported]
    return _text(f"{numbers[0] - numbers[1]:+{form}}") if len(numbers) == 2 else NOTHING


def _distance(outcome: Outcome, baseline: Outcome) -> str | None:
    own, height = outcome.accuracy(LINEAR), baseline.accuracy(LINEAR)
    return None if own is None or height is None or outcome is baseline else f"{own.mean - height.mean:+.2f}"


def _best(outcomes: Iterable[Outcome], column: str) -> Outcome | None:
    scored = [(spread.mean, each) for each in outcomes if (spread := each.accuracy(column))]
    return max(scored, key=lambda pair: pair[0], default=(0.0, None))[1]


def _last_logged(outcome: Outcome, metric: str) -> str | None:
    found = [result["last_logged"][metric] for result in outcome.trained if metric in result.get("last_logged", {})]
    return f"{100 * mean(found):.2f}" if found else None


def _mean(outcome: Outcome, key: str, scale: float = 1.0) -> str:
    found = outcome.curve(key)
    known = [] if found is None else [value for value in found[1] if value == value]  # not nan
    return f"{scale * mean(known):.3g}" if known else NOTHING


def _notes(outcomes: Sequence[Outcome], columns: Sequence[str]) -> list[str]:
    """How the numbers were measured, on what, and what went wrong."""
    results = [result for each in outcomes for result in each.results]
    notes = []
    if results:
        notes.append(f"Top-1 on the {results[0]['split']} split after the last epoch; the highest in bold.")
        singles = [found[0][1] for each in outcomes if len(found := each.scores(columns[0])) == 1]
        if any(len(each.trained) > 1 for each in outcomes):
            notes.append("± is the 95 % confidence interval over seeds (Student's t).")
        if singles:
            top1, num = mean(score["top1"] for score in singles), singles[0]["num_images"]
            error = sqrt(top1 * (100 - top1) / num)
            notes.append(f"One seed: {top1:.0f} % of {num:,} images has a standard error of {error:.1f} points.")
        for column in columns:
            title = TITLES[column].removesuffix(" %")
            notes += _fact(title, outcomes, lambda r, column=column: (judged_by(r, column) or {}).get("protocol", ""))  # type: ignore[misc]
        if LINEAR in columns:
            notes.append("online probe: scored on training views, so not comparable with the other columns.")
        for key in ("encoder", "epochs", "hardware", "git_revision", "note"):
            notes += _fact(key.replace("_", " "), outcomes, lambda result, key=key: str(result.get(key) or ""))  # type: ignore[misc]
        if any(str(result["hardware"]).startswith("cpu") for result in results):
            notes.append("On a CPU, another number of threads changes accuracies as much as another seed does.")
    for reason in dict.fromkeys(each.absent for each in outcomes if each.absent):
        names = _join(each.row.at or each.row.title for each in outcomes if each.absent == reason)
        notes.append(f"Left out: {names}; {reason}.")
    return [*notes, *(sentence for each in outcomes for sentence in each.problems())]


def _fact(title: str, outcomes: Sequence[Outcome], value_of: Callable[[Result], str]) -> list[str]:
    """What holds for the results; if it is not the same for all, a note per value with the rows that have it."""
    owners: dict[str, dict[str, None]] = {}
    for outcome in outcomes:
        for result in outcome.trained:
            owners.setdefault(value_of(result), {})[outcome.row.title] = None
    if len(owners) == 1:
        return [f"{title}: {value}." for value in owners if value]
    return [f"{title}: {value} – {'; '.join(rows)}." for value, rows in owners.items() if value]
