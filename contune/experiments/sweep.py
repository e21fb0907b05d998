"""The table of methods over the values of one setting, as behind the paper's figures of stability."""

from collections.abc import Callable, Sequence

from contune.experiments.facts import notes
from contune.experiments.grid import (
    Grid,
    accuracy_cell,
    by_place,
    difference_text,
    names_of,
    reported,
    reported_cell,
)
from contune.experiments.outcome import TOP1, Outcome
from contune.experiments.plan import PAPER
from contune.experiments.style import SUPCON, TCL
from contune.experiments.table import Cell, Table


def sweep_table(setting: str) -> Callable[[str, Sequence[Outcome]], Table]:
    """A line for each value of `setting`, a column for each method."""

    def make(title: str, outcomes: Sequence[Outcome]) -> Table:
        cells = by_place(outcomes)
        methods = names_of(cells, 0)
        quoted = [method for method in methods if any(reported(cells[key]) for key in cells if key[0] == method)]
        columns = [*methods, f"{TCL} − {SUPCON}", *(f"{method}, {PAPER}" for method in quoted)]
        return Table(
            title=title,
            columns=(setting, *columns),
            groups=(tuple(_line(place, cells, methods, quoted) for place in names_of(cells, 1)),),
            numbers=tuple(columns),
            notes=tuple(notes(outcomes, (TOP1,))),
        )

    return make


def _line(place: str, cells: Grid, methods: Sequence[str], quoted: Sequence[str]) -> tuple[Cell, ...]:
    rivals = [cells.get((method, place)) for method in methods]
    return (
        Cell(place),
        *(accuracy_cell(rival, rivals) for rival in rivals),
        Cell(difference_text(cells.get((TCL, place)), cells.get((SUPCON, place)))),
        *(reported_cell(cells.get((method, place))) for method in quoted),
    )
