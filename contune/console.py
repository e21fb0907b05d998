"""What a person reads in the terminal: sentences and tables, printed by the main process only."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from contune import distributed

MEASURE_TITLES = {
    "linear": "linear probe, the paper's",
    "linear-fast": "linear probe, fast",
    "knn": "kNN",
    "classifier": "classifier",
    "pixels-linear-fast": "raw pixels, linear",
    "pixels-knn": "raw pixels, kNN",
}


_listener: ContextVar[Callable[[str], None] | None] = ContextVar("listener", default=None)


@contextmanager
def said_to(listener: Callable[[str], None]) -> Iterator[None]:
    """What this thread would print as sentences goes to `listener` instead."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def say(text: str = "") -> None:
    """A line of plain text; nothing in it is markup, so paths and names come out as they are."""
    if not distributed.is_main():
        return
    if (listener := _listener.get()) is not None:
        listener(text)
    else:
        Console(highlight=False, soft_wrap=True, emoji=False).print(text, markup=False)


def printable(text: str) -> str:
    """A file's name as a terminal can show it: line breaks and bytes that are no text are written out."""
    return text if text.isprintable() else repr(text)[1:-1]


def show_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Sequence[str] = ()) -> None:
    """Columns named in `numbers` are set flush right."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(column, justify="right" if column in numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    if distributed.is_main():
        Console(highlight=False, width=None if sys.stdout.isatty() else 160).print(table)


def show_measures(result: dict[str, Any]) -> None:
    """The table at the end of a run: each accuracy with its protocol."""
    rows = [
        (
            MEASURE_TITLES.get(measure["name"], measure["name"]),
            f"{measure['top1']:.2f}",
            "" if measure["top5"] is None else f"{measure['top5']:.2f}",
            measure["protocol"],
        )
        for measure in result["measures"]
    ]
    if rows:
        show_table((result["split"], "top-1 %", "top-5 %", "protocol"), rows, numbers=("top-1 %", "top-5 %"))
    else:
        say("nothing was measured: there are no labels, or no split to measure on")
