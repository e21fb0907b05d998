"""The table of runs side by side: accuracies over seeds, what others report, and what has to be known of a row."""

from collections.abc import Callable, Iterable, Sequence
from math import sqrt
from statistics import mean
from typing import NamedTuple

from contune.analysis.wording import duration
from contune.experiments.outcome import Outcome, Result
from contune.experiments.table import Cell, Table

NOTHING = "–"


class Column(NamedTuple):
    title: str
    text: Callable[[Outcome], str]
    """What a row has in it; empty or a dash where it has nothing."""
    score: Callable[[Outcome], float | None] = lambda outcome: None
    """In columns whose highest number stands out."""
    is_number: bool = True


def comparison(title: str, outcomes: Sequence[Outcome]) -> Table:
    """A row for each outcome, baselines last; columns in which no row has anything are left out."""
    baseline = highest_baseline(outcomes)
    columns = [column for column in _columns(outcomes, baseline) if any(_says(column, each) for each in outcomes)]
    best = {column.title: _highest(column, outcomes) for column in columns}
    groups = [
        tuple(_cells(outcome, columns, best) for outcome in outcomes if outcome.row.is_baseline == is_baseline)
        for is_baseline in (False, True)
    ]
    return Table(
        title=title,
        columns=("method", *(column.title for column in columns)),
        groups=tuple(group for group in groups if group),
        numbers=tuple(column.title for column in columns if column.is_number),
        notes=tuple(_notes(outcomes)),
    )


def highest_baseline(outcomes: Iterable[Outcome]) -> Outcome | None:
    """The baseline of the highest linear accuracy."""
    measured = [each for each in outcomes if each.row.is_baseline and each.accuracy("linear") is not None]
    return max(measured, key=lambda each: _mean(each, "linear") or 0.0, default=None)


def _columns(outcomes: Sequence[Outcome], baseline: Outcome | None) -> list[Column]:
    whose = list(dict.fromkeys(name for each in outcomes for name in each.row.beside))
    above = [] if baseline is None else [_margin(baseline)]
    return [
        Column("linear %", lambda each: str(each.accuracy("linear") or NOTHING), lambda each: _mean(each, "linear")),
        *above,
        Column("kNN %", lambda each: str(each.accuracy("knn") or NOTHING), lambda each: _mean(each, "knn")),
        Column("online probe %", _online),
        Column("epochs", lambda each: _same(each.results, "epochs") if each.has_seeds else NOTHING),
        Column("seeds", lambda each: str(len(each.results)) if each.has_seeds else NOTHING),
        *(_reported(name, outcomes) for name in whose),
        Column("training", _training),
        Column("remark", lambda each: each.remark(), is_number=False),
    ]


def _margin(baseline: Outcome) -> Column:
    height = _mean(baseline, "linear") or 0.0

    def text(outcome: Outcome) -> str:
        own = _mean(outcome, "linear")
        return NOTHING if own is None or outcome is baseline else f"{own - height:+.2f}".replace("-", "−")

    return Column(f"over {baseline.row.title.lower()}", text)


def _reported(whose: str, outcomes: Iterable[Outcome]) -> Column:
    """With as many decimals as they give."""
    numbers = [each.row.beside[whose] for each in outcomes if whose in each.row.beside]
    decimals = max(len(f"{number:g}".partition(".")[2]) for number in numbers)
    return Column(whose, lambda each: f"{each.row.beside[whose]:.{decimals}f}" if whose in each.row.beside else NOTHING)


def _mean(outcome: Outcome, measure: str) -> float | None:
    spread = outcome.accuracy(measure)
    return None if spread is None else spread.mean


def _online(outcome: Outcome) -> str:
    share = outcome.logged("online_top1")
    return NOTHING if share is None else f"{100 * share.mean:.2f}"


def _training(outcome: Outcome) -> str:
    seconds = [result["seconds"] for result in outcome.results]
    return duration(mean(seconds)) if any(seconds) and outcome.has_seeds else NOTHING


def values_of(results: Iterable[Result], key: str) -> list[str]:
    """The different values that results have, in order."""
    return list(dict.fromkeys(str(result[key]) for result in results if key in result))


def _same(results: Iterable[Result], key: str) -> str:
    return ", ".join(values_of(results, key)) or NOTHING


def _says(column: Column, outcome: Outcome) -> bool:
    return column.text(outcome) not in ("", NOTHING)


def _highest(column: Column, outcomes: Iterable[Outcome]) -> float | None:
    scores = [column.score(each) for each in outcomes if not each.row.is_baseline]
    return max((score for score in scores if score is not None), default=None)


def _cells(outcome: Outcome, columns: Iterable[Column], best: dict[str, float | None]) -> tuple[Cell, ...]:
    cells = [Cell(outcome.row.title)]
    for column in columns:
        score = column.score(outcome)
        strong = score is not None and score == best[column.title] and not outcome.row.is_baseline
        cells.append(Cell(column.text(outcome), strong))
    return tuple(cells)


def _notes(outcomes: Sequence[Outcome]) -> list[str]:
    results = [result for each in outcomes for result in each.results]
    if not results:
        return [sentence for each in outcomes for sentence in each.sentences()]
    several = any(len(each.results) > 1 for each in outcomes)
    notes = [
        f"Top-1 on the {_same(results, 'split')} split after the last epoch; in bold the highest. "
        + ("± is the 95 % confidence interval over seeds (Student's t)." if several else _one_seed(outcomes))
    ]
    for measure in ("linear", "knn"):
        protocols = _same(results, f"{measure}_protocol")
        if protocols != NOTHING:
            notes.append(f"{'kNN' if measure == 'knn' else measure}: {protocols}.")
    if any(each.logged("online_top1") for each in outcomes):
        notes.append(
            "online probe: on the last training views it learnt from, so it is not to be compared with the others."
        )
    notes.append(f"training: one run on {_same(results, 'hardware')}.")
    shared = _same(results, "note")
    if shared != NOTHING:
        notes.append(f"{shared[0].upper()}{shared[1:]}.")
    return [*notes, *(sentence for each in outcomes for sentence in each.sentences())]


def _one_seed(outcomes: Iterable[Outcome]) -> str:
    """How far chance alone goes, where repetitions do not show it."""
    top1 = mean(spread.mean for each in outcomes if (spread := each.accuracy("linear") or each.accuracy("knn")))
    num = next(m["num_images"] for each in outcomes for result in each.results for m in result["measures"])
    error = sqrt(top1 * (100 - top1) / num)
    return f"One seed each: an accuracy of {top1:.0f} % on {num:,} images has a standard error of {error:.1f} points."
