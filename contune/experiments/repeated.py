"""The table of many seeds: each method's mean with its interval, and what one has over another seed by seed."""

from collections.abc import Sequence
from itertools import pairwise

from contune.experiments.facts import NOTHING, notes
from contune.experiments.grid import accuracy_cell, signed
from contune.experiments.outcome import FAST, KNN, TOP1, Outcome, are_measured_apart
from contune.experiments.plan import PAPER
from contune.experiments.table import Cell, Table
from contune.report.statistics import PairedDifference

P_VALUE = "p"
TITLES = {TOP1: "top-1 %", FAST: "fast probe %", KNN: "kNN %"}
EXPLAINED = (
    "A difference is that of runs with the same seed, ± its 95 % confidence interval; p: the two-sided paired t-test "
    "of top-1, how often chance alone makes a difference as large, not corrected for there being several."
)


def repeated(title: str, outcomes: Sequence[Outcome]) -> Table:
    """Methods from the weakest; below, each less the one before over the seeds that both have."""
    measures = (TOP1, *([FAST] if are_measured_apart(outcomes) else []), KNN)
    quoted = [PAPER] if any(PAPER in each.row.beside for each in outcomes) else []
    columns = (*(TITLES[measure] for measure in measures), "seeds", P_VALUE, *quoted)
    methods = [_method(each, outcomes, measures, bool(quoted)) for each in outcomes]
    differences = [_difference(below, above, measures, bool(quoted)) for below, above in pairwise(outcomes)]
    several = any(len(each.results) > 1 for each in outcomes)
    return Table(
        title=title,
        columns=("", *columns),
        groups=(tuple(methods), tuple(differences)),
        numbers=columns,
        findings=tuple(_verdicts(outcomes)),
        notes=(*notes(outcomes, measures), *([EXPLAINED] if several else [])),
    )


def _method(outcome: Outcome, rivals: Sequence[Outcome], measures: Sequence[str], quoted: bool) -> tuple[Cell, ...]:
    return (
        Cell(outcome.row.series),
        accuracy_cell(outcome, rivals),
        *(Cell(str(outcome.accuracy(measure) or NOTHING)) for measure in measures[1:]),
        Cell(str(len(outcome.results))),
        Cell(NOTHING),
        *([Cell(_reported(outcome))] if quoted else []),
    )


def _reported(outcome: Outcome) -> str:
    number, half = outcome.row.beside.get(PAPER), outcome.row.beside_half.get(PAPER)
    if number is None:
        return NOTHING
    return f"{number:g}" if half is None else f"{number:g} ± {half:g}"


def _difference(below: Outcome, above: Outcome, measures: Sequence[str], quoted: bool) -> tuple[Cell, ...]:
    found = above.above(below)
    numbers = above.row.beside.get(PAPER), below.row.beside.get(PAPER)
    paper = NOTHING if numbers[0] is None or numbers[1] is None else signed(f"{numbers[0] - numbers[1]:+.2f}")
    return (
        Cell(f"{above.row.series} − {below.row.series}"),
        *(Cell(_text(above.above(below, measure))) for measure in measures),
        Cell(str(found.num) if found is not None else NOTHING),
        Cell(p_text(found.p if found is not None else None)),
        *([Cell(paper)] if quoted else []),
    )


def _verdicts(outcomes: Sequence[Outcome]) -> list[str]:
    """In plain words, what the interval of each difference says: in top-1, or in what was measured alike."""
    sentences = []
    for below, above in pairwise(outcomes):
        alike = not are_measured_apart((below, above))
        found = above.above(below, TOP1 if alike else FAST)
        if found is not None and found.half is not None:
            by = "" if alike else "By the fast probe, which both have, "
            sentences.append(by + _verdict(found, found.half, above.row.series, below.row.series))
    return sentences


def _verdict(found: PairedDifference, half: float, above: str, below: str) -> str:
    if abs(found.mean) <= half:
        return f"{above} and {below} are not told apart by {found.num} seeds: 0 is in the interval of their difference."
    upper, lower = (above, below) if found.mean > 0 else (below, above)
    return f"{upper} is above {lower}: 0 is outside the interval of their difference."


def _text(difference: PairedDifference | None) -> str:
    return NOTHING if difference is None else signed(str(difference))


def p_text(p: float | None) -> str:
    if p is None:
        return NOTHING
    return "< 0.0001" if p < 1e-4 else f"{p:.2g}"
