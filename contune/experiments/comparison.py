"""The table of runs side by side: accuracies over seeds, what others report, and what has to be known of a row."""

from collections.abc import Callable, Iterable, Sequence
from statistics import mean
from typing import NamedTuple

from contune.analysis.wording import duration
from contune.experiments.facts import NOTHING, notes, same
from contune.experiments.outcome import KNN, LINEAR, Outcome
from contune.experiments.table import Cell, Table


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
        notes=tuple(notes(outcomes, (LINEAR, KNN))),
    )


def highest_baseline(outcomes: Iterable[Outcome]) -> Outcome | None:
    """The baseline of the highest linear accuracy."""
    measured = [each for each in outcomes if each.row.is_baseline and each.accuracy(LINEAR) is not None]
    return max(measured, key=lambda each: _mean(each, LINEAR) or 0.0, default=None)


def _columns(outcomes: Sequence[Outcome], baseline: Outcome | None) -> list[Column]:
    whose = list(dict.fromkeys(name for each in outcomes for name in each.row.beside))
    above = [] if baseline is None else [_margin(baseline)]
    return [
        Column("linear %", lambda each: str(each.accuracy(LINEAR) or NOTHING), lambda each: _mean(each, LINEAR)),
        *above,
        Column("kNN %", lambda each: str(each.accuracy(KNN) or NOTHING), lambda each: _mean(each, KNN)),
        Column("online probe %", _online),
        Column("epochs", lambda each: same(each.results, "epochs") if each.has_seeds else NOTHING),
        Column("views", _views),
        Column("seeds", lambda each: str(len(each.results)) if each.has_seeds else NOTHING),
        *(_reported(name, outcomes) for name in whose),
        Column("training", _training),
        Column("remark", lambda each: each.remark(), is_number=False),
    ]


def _margin(baseline: Outcome) -> Column:
    height = _mean(baseline, LINEAR) or 0.0

    def text(outcome: Outcome) -> str:
        own = _mean(outcome, LINEAR)
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


def _views(outcome: Outcome) -> str:
    """Of an image in an epoch; where one has more of them than the others, its epochs are longer."""
    found = dict.fromkeys(str(result["config"]["augment"]["views"]) for result in outcome.results if result["epochs"])
    return (", ".join(found) or NOTHING) if outcome.has_seeds else NOTHING


def _training(outcome: Outcome) -> str:
    seconds = [result["seconds"] for result in outcome.results]
    return duration(mean(seconds)) if any(seconds) and outcome.has_seeds else NOTHING


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
