"""The table of many seeds: each method's mean with its interval, and what one has over another seed by seed."""

from collections.abc import Sequence
from itertools import pairwise

from contune.analysis.statistics import PairedDifference
from contune.experiments.facts import NOTHING, notes
from contune.experiments.grid import signed
from contune.experiments.outcome import KNN, TOP1, Outcome
from contune.experiments.plan import PAPER
from contune.experiments.table import Cell, Table

P_VALUE = "p"


def repeated(title: str, outcomes: Sequence[Outcome]) -> Table:
    """Methods from the weakest; below, each less the one before over the seeds that both have."""
    quoted = [PAPER] if any(PAPER in each.row.beside for each in outcomes) else []
    columns = ("top-1 %", "kNN %", "seeds", P_VALUE, *quoted)
    means = [(spread.mean if (spread := each.accuracy(TOP1)) else None) for each in outcomes]
    best = max((mean for mean in means if mean is not None), default=None)
    methods = [_method(each, bool(quoted), strong=mean is not None and mean == best)
               for each, mean in zip(outcomes, means, strict=True)]  # fmt: skip
    differences = [_difference(below, above, bool(quoted)) for below, above in pairwise(outcomes)]
    explained = (
        "A difference is that of runs with the same seed, ± its 95 % confidence interval; "
        "p: the two-sided paired t-test, how often chance alone makes one as large."
    )
    several = any(len(each.results) > 1 for each in outcomes)
    return Table(
        title=title,
        columns=("", *columns),
        groups=(tuple(methods), tuple(differences)),
        numbers=columns,
        notes=(*notes(outcomes, (TOP1, KNN)), *([explained] if several else []), *verdicts(outcomes)),
    )


def _method(outcome: Outcome, quoted: bool, *, strong: bool) -> tuple[Cell, ...]:
    spread = outcome.accuracy(TOP1)
    return (
        Cell(outcome.row.series),
        Cell(str(spread), strong) if spread is not None else Cell(outcome.remark() or NOTHING),
        Cell(str(outcome.accuracy(KNN) or NOTHING)),
        Cell(str(len(outcome.results))),
        Cell(NOTHING),
        *([Cell(_reported(outcome))] if quoted else []),
    )


def _reported(outcome: Outcome) -> str:
    number, half = outcome.row.beside.get(PAPER), outcome.row.beside_half.get(PAPER)
    if number is None:
        return NOTHING
    return f"{number:g}" if half is None else f"{number:g} ± {half:g}"


def _difference(below: Outcome, above: Outcome, quoted: bool) -> tuple[Cell, ...]:
    found, by_knn = above.above(below), above.above(below, KNN)
    numbers = above.row.beside.get(PAPER), below.row.beside.get(PAPER)
    paper = NOTHING if numbers[0] is None or numbers[1] is None else signed(f"{numbers[0] - numbers[1]:+.2f}")
    return (
        Cell(f"{above.row.series} − {below.row.series}"),
        Cell(_text(found)),
        Cell(_text(by_knn)),
        Cell(str(found.num) if found is not None else NOTHING),
        Cell(p_text(found.p if found is not None else None)),
        *([Cell(paper)] if quoted else []),
    )


def verdicts(outcomes: Sequence[Outcome]) -> list[str]:
    """In plain words, what the interval of each difference in top-1 says."""
    sentences = []
    for below, above in pairwise(outcomes):
        found, names = above.above(below), (above.row.series, below.row.series)
        if found is None or found.half is None:
            continue
        if abs(found.mean) > found.half:
            upper, lower = names if found.mean > 0 else reversed(names)
            sentences.append(f"{upper} is above {lower}: 0 is outside the interval of their difference.")
        else:
            which = " and ".join(names)
            sentences.append(
                f"{which} are not told apart by {found.num} seeds: 0 is in the interval of their difference."
            )
    return sentences


def _text(difference: PairedDifference | None) -> str:
    return NOTHING if difference is None else signed(str(difference))


def p_text(p: float | None) -> str:
    if p is None:
        return NOTHING
    return "< 0.0001" if p < 1e-4 else f"{p:.2g}"
