"""What an experiment is: rows of runs, and how they are drawn."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from matplotlib.figure import Figure

from contune.experiments.comparison import comparison
from contune.experiments.dots import dots
from contune.experiments.outcome import Outcome
from contune.experiments.plan import PAPER, Row, check_overrides, meaningful
from contune.experiments.table import Table
from contune.settings import split_assignment


@dataclass(frozen=True, kw_only=True)
class Experiment:
    title: str
    rows: tuple[Row, ...]
    name: str = ""
    """What the command line calls it."""
    overrides: tuple[str, ...] = ()
    """KEY=VALUE for all rows, below what a row says of itself."""
    given: tuple[str, ...] = ()
    """Those of them that are a person's."""
    num_seeds: int = 1
    """How many where a person does not say."""
    notes: tuple[str, ...] = ()
    """Sentences under the table, after those that come from the results."""
    make_table: Callable[[str, Sequence[Outcome]], Table] = comparison
    """From a title and what the rows came to."""
    make_figure: Callable[[str, Sequence[Outcome]], Figure] = dots

    def changed(self, overrides: Iterable[str]) -> "Experiment":
        """With a person's settings, which stand above its own; what differs is said under the table.

        The paper's numbers are for the settings as they were.
        """
        given = tuple(overrides)
        rows = tuple(row.yielding(given) for row in self.rows)
        check_overrides(rows, (*self.overrides, *given))
        changed = replace(self, rows=rows, overrides=(*self.overrides, *given), given=given)
        different = meaningful(given)
        if not different:
            return changed
        notes = [*self.notes, f"Settings changed for all runs: {' '.join(different)}{_but(rows, different)}."]
        if any(PAPER in row.beside for row in rows):
            notes.append("The paper's numbers are for other settings, and left out.")
        return replace(changed, rows=tuple(row.without_paper() for row in rows), notes=tuple(notes))

    def table(self, outcomes: Sequence[Outcome]) -> Table:
        table = self.make_table(self.title, outcomes)
        return replace(table, notes=(*table.notes, *self.notes))

    def figure(self, outcomes: Sequence[Outcome], *, titled: bool = True) -> Figure:
        return self.make_figure(self.title if titled else "", outcomes)


def _but(rows: Iterable[Row], given: Iterable[str]) -> str:
    """Which rows have their own."""
    keys = [split_assignment(text)[0] for text in given]
    own = [f"{row.title} has its own {key}" for key in keys for row in rows if row.sets(key)]
    return f" ({', '.join(own)})" if own else ""
