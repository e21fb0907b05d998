"""What an experiment is: rows of runs, and how they are drawn."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from matplotlib.figure import Figure

from contune.experiments.comparison import comparison
from contune.experiments.dots import dots
from contune.experiments.outcome import Outcome
from contune.experiments.plan import Row, check_overrides, meaningful
from contune.experiments.table import Table


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
        """With a person's settings, which stand above its own; what differs is said under the table."""
        given = tuple(overrides)
        check_overrides(self.rows, (*self.overrides, *given))
        different = meaningful(given)
        notes = (f"Settings changed for all runs: {' '.join(different)}.",) if different else ()
        return replace(self, overrides=(*self.overrides, *given), given=given, notes=(*self.notes, *notes))

    def table(self, outcomes: Sequence[Outcome]) -> Table:
        table = self.make_table(self.title, outcomes)
        return replace(table, notes=(*table.notes, *self.notes))

    def figure(self, outcomes: Sequence[Outcome], *, titled: bool = True) -> Figure:
        return self.make_figure(self.title if titled else "", outcomes)
