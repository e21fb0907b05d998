"""How a long job shows where it is: a bar on a terminal, now and then a line in a log file."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from contune import distributed

Advance = Callable[[int, str], None]
"""Called with how much is done so far and a short text of what goes with it."""

SECONDS_BETWEEN_LINES = 10.0


@contextmanager
def progress(title: str, total: int, *, unit: str = "") -> Iterator[Advance]:
    """A bar for `total` pieces of work, shown by the main process only."""
    if not distributed.is_main():
        yield lambda done, text: None
    elif sys.stderr.isatty():
        with _bar() as bar:
            task = bar.add_task(title, total=total, text="")
            yield lambda done, text: bar.update(task, completed=done, text=text)
    else:
        yield _line_printer(title, total, unit)


def _bar() -> Progress:
    return Progress(
        TextColumn("{task.description:<10}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TextColumn("{task.fields[text]}"),
        TimeRemainingColumn(compact=True),
        console=Console(stderr=True),
        redirect_stdout=sys.stdout.isatty(),  # what goes to a file is left alone
    )


def _line_printer(title: str, total: int, unit: str) -> Advance:
    """For logs: a line every few seconds and none for what is over sooner, so that files stay readable."""
    last = time.monotonic()

    def advance(done: int, text: str) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= SECONDS_BETWEEN_LINES:
            last = now
            print(f"{title}: {done}/{total} {unit} {text}".rstrip(), file=sys.stderr, flush=True)

    return advance
