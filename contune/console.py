"""What a person reads in the terminal, printed by the main process only: sentences, tables, findings, progress.

A long job shows a bar on a terminal and an occasional line in a log file. Jobs in worker processes send their
sentences and progress to the process that started them, which shows one bar for each.
"""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import NamedTuple

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from contune import distributed

Advance = Callable[[int, str], None]
"""Call it with the amount done so far and a short text to show next to the bar."""

SECONDS_BETWEEN_LINES = 10.0
SECONDS_BETWEEN_REPORTS = 0.2


class ProgressUpdate(NamedTuple):
    """The progress of a job in another process."""

    title: str
    done: int
    total: int
    text: str


@dataclass(frozen=True)
class Finding:
    """One line of an examination: ✓ fine, ! worth a change, ✗ wrong."""

    mark: str
    text: str

    @property
    def is_bad(self) -> bool:
        return self.mark == "✗"


def fine(text: str) -> Finding:
    return Finding("✓", text)


def advice(text: str) -> Finding:
    return Finding("!", text)


def wrong(text: str) -> Finding:
    return Finding("✗", text)


_listener: ContextVar[Callable[[str], None] | None] = ContextVar("listener", default=None)
_receiver: ContextVar[Callable[[ProgressUpdate], None] | None] = ContextVar("receiver", default=None)


@contextmanager
def redirect_say(listener: Callable[[str], None]) -> Iterator[None]:
    """Send this thread's sentences to `listener` instead of printing them."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


@contextmanager
def redirect_progress(receiver: Callable[[ProgressUpdate], None]) -> Iterator[None]:
    """Send this thread's progress to `receiver` a few times a second instead of showing it."""
    last = 0.0

    def receive(report: ProgressUpdate) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= SECONDS_BETWEEN_REPORTS or report.done == report.total:
            last = now
            receiver(report)

    token = _receiver.set(receive)
    try:
        yield
    finally:
        _receiver.reset(token)


def say(text: str = "") -> None:
    """Print a line of plain text. Nothing in it is markup, so paths and names come out unchanged."""
    if not distributed.is_main():
        return
    if (listener := _listener.get()) is not None:
        listener(text)
    else:
        Console(highlight=False, soft_wrap=True, emoji=False).print(text, markup=False)


def plural(num: int, noun: str, ending: str = "s") -> str:
    """`1 image`, `1,234 images`"""
    return f"{num:,} {noun}{'' if num == 1 else ending}"


def printable(text: str) -> str:
    """A file name for the terminal: line breaks and undecodable bytes are escaped."""
    return text if text.isprintable() else repr(text)[1:-1]


def show_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Sequence[str] = ()) -> None:
    """Print a table; the columns named in `numbers` are right-aligned."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(column, justify="right" if column in numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    if distributed.is_main():
        Console(highlight=False, width=None if sys.stdout.isatty() else 160).print(table)


@contextmanager
def progress(title: str, total: int, *, unit: str = "") -> Iterator[Advance]:
    """A progress bar for `total` pieces of work."""
    receiver = _receiver.get()
    if not distributed.is_main():
        yield lambda done, text: None
    elif receiver is not None:
        yield lambda done, text: receiver(ProgressUpdate(title, done, total, text))
    elif sys.stderr.isatty():
        with _bar() as bar:
            task = bar.add_task(title, total=total, text="")
            yield lambda done, text: bar.update(task, completed=done, text=text)
    else:
        line = _line_printer()
        yield lambda done, text: line(f"{title}: {done}/{total} {unit} {text}")


@contextmanager
def progress_of_many(names: Sequence[str]) -> Iterator[Callable[[int, ProgressUpdate], None]]:
    """A bar for each job in another process. Call what is yielded with the index of a job and its progress."""
    if sys.stderr.isatty():
        with _bar(width=max(map(len, names), default=0)) as bar:
            tasks = [bar.add_task(name, total=None, text="waiting") for name in names]
            titles = [""] * len(names)

            def update(job: int, report: ProgressUpdate) -> None:
                if report.title != titles[job]:  # a new stage with its own speed
                    bar.reset(tasks[job], total=report.total)
                    titles[job] = report.title
                bar.update(tasks[job], completed=report.done, text=f"{report.title}  {report.text}")

            yield update
    else:
        lines = [_line_printer() for _ in names]
        yield lambda job, report: lines[job](f"{names[job]}: {report.title} {report.done}/{report.total} {report.text}")


def _bar(width: int = 10) -> Progress:
    return Progress(
        TextColumn(f"{{task.description:<{width}}}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TextColumn("{task.fields[text]}"),
        TimeRemainingColumn(compact=True),
        console=Console(stderr=True),
        redirect_stdout=sys.stdout.isatty(),  # output redirected to a file stays untouched
    )


def _line_printer() -> Callable[[str], None]:
    """For logs: one line every few seconds, and none for a job that ends sooner."""
    last = time.monotonic()

    def print_line(text: str) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= SECONDS_BETWEEN_LINES:
            last = now
            print(text.rstrip(), file=sys.stderr, flush=True)

    return print_line
