"""The table of methods by data sets, as the paper's table 1: our accuracy and the paper's in neighbouring columns."""

from collections.abc import Iterable, Sequence
from itertools import pairwise

from contune.experiments.facts import NOTHING, notes
from contune.experiments.outcome import TOP1, Outcome
from contune.experiments.plan import PAPER
from contune.experiments.table import Cell, Table

Grid = dict[tuple[str, str], Outcome]
"""Outcomes by series and place."""


def grid(title: str, outcomes: Sequence[Outcome]) -> Table:
    """A row for each method, below them what each has over the one before; data sets that are not there left out."""
    cells = by_place(outcomes)
    methods, places = names_of(cells, 0), names_of(cells, 1)
    with_paper = {place: any(reported(cells.get((method, place))) for method in methods) for place in places}
    columns = [title for place in places for title in (place, *([PAPER] if with_paper[place] else []))]
    rows = [_row(method, cells, with_paper) for method in methods]
    differences = [_difference(below, above, cells, with_paper) for below, above in pairwise(methods)]
    return Table(
        title=title,
        columns=("method", *columns),
        groups=tuple(group for group in (tuple(rows), tuple(differences)) if group),
        numbers=tuple(columns),
        notes=tuple(notes(outcomes, (TOP1,))),
    )


def by_place(outcomes: Iterable[Outcome]) -> Grid:
    return {(each.row.series, each.row.at): each for each in outcomes if not each.left_out}


def names_of(cells: Grid, direction: int) -> list[str]:
    """The series (0) or the places (1), in order."""
    return list(dict.fromkeys(key[direction] for key in cells))


def accuracy_cell(outcome: Outcome | None, rivals: Iterable[Outcome | None]) -> Cell:
    """The highest among the rivals stands out; what there is to know of its runs, such as that some are missing."""
    spread = outcome.accuracy(TOP1) if outcome is not None else None
    if outcome is None or spread is None:
        return Cell((outcome.remark() if outcome is not None else "") or NOTHING)
    remark = f" ({outcome.remark()})" if outcome.remark() else ""
    means = [found.mean for rival in rivals if rival is not None and (found := rival.accuracy(TOP1)) is not None]
    return Cell(f"{spread}{remark}", strong=len(means) > 1 and spread.mean == max(means))


def reported_cell(outcome: Outcome | None) -> Cell:
    number = reported(outcome)
    return Cell(NOTHING if number is None else f"{number:.1f}")


def reported(outcome: Outcome | None) -> float | None:
    return None if outcome is None else outcome.row.beside.get(PAPER)


def difference_text(above: Outcome | None, below: Outcome | None) -> str:
    found = above.above(below) if above is not None and below is not None else None
    return NOTHING if found is None else signed(str(found))


def signed(text: str) -> str:
    """With a minus that is as wide as a plus."""
    return text.replace("-", "−")


def reported_difference(above: Outcome | None, below: Outcome | None) -> str:
    numbers = reported(above), reported(below)
    return NOTHING if numbers[0] is None or numbers[1] is None else signed(f"{numbers[0] - numbers[1]:+.1f}")


def _row(method: str, cells: Grid, with_paper: dict[str, bool]) -> tuple[Cell, ...]:
    row = [Cell(method)]
    for place, has_paper in with_paper.items():
        rivals = [outcome for (_, other), outcome in cells.items() if other == place]
        row.append(accuracy_cell(cells.get((method, place)), rivals))
        row += [reported_cell(cells.get((method, place)))] if has_paper else []
    return tuple(row)


def _difference(below: str, above: str, cells: Grid, with_paper: dict[str, bool]) -> tuple[Cell, ...]:
    row = [Cell(f"{above} − {below}")]
    for place, has_paper in with_paper.items():
        pair = cells.get((above, place)), cells.get((below, place))
        row.append(Cell(difference_text(*pair)))
        row += [Cell(reported_difference(*pair))] if has_paper else []
    return tuple(row)
