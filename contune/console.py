"""What a person reads in the terminal, printed by the main process only: sentences, tables, findings, progress.

A long job shows a bar on a terminal and an occasional line in a log file. Jobs in worker processes send their
sentences and progress to the process that started them, which shows one bar for each.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from io import TextIOWrapper
from shutil import get_terminal_size
from textwrap import fill
from typing import NamedTuple, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

Advance = Callable[[int, str], None]
"""Call it with the amount done so far and a short text to show next to the bar."""

SECONDS_BETWEEN_LINES = 10.0


class ProgressUpdate(NamedTuple):
    """The progress of a job in another process."""

    title: str
    done: int
    total: int
    text: str
    unit: str = ""


@dataclass(frozen=True)
class Finding:
    """One line of an examination: ✓ a check that passed, ! worth a change, ✗ wrong, a space for information."""

    mark: str
    text: str


fine, advice = partial(Finding, "✓"), partial(Finding, "!")
wrong, note = partial(Finding, "✗"), partial(Finding, " ")

Receiver = Callable[[ProgressUpdate], None]
Listener = Callable[[str], None]
_redirection: ContextVar[tuple[Receiver | None, Listener | None]] = ContextVar("redirection", default=(None, None))


@contextmanager
def redirected(receiver: Receiver, listener: Listener | None = None) -> Iterator[None]:
    """Send this thread's progress to `receiver`, and its sentences to `listener`, if any."""
    token = _redirection.set((receiver, listener))
    try:
        yield
    finally:
        _redirection.reset(token)


def say(text: str = "") -> None:
    """Print lines of plain text. Nothing in them is markup, and control characters are escaped."""
    text = "\n".join(map(printable, text.split("\n")))
    listener = _redirection.get()[1]
    if listener is None:
        emit(text, sys.stdout)
    elif _is_main():
        listener(text)


def emit(text: str, stream: TextIO | None) -> None:
    """Print lines, sentences wrapped on a terminal. Escape what the stream cannot encode; a closed one ends no run."""
    if stream is None or not _is_main():
        return
    try:
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
        if stream.isatty():  # lines with several spaces in a row are tables, or commands to copy
            wrap = partial(fill, width=get_terminal_size().columns, break_long_words=False, break_on_hyphens=False)
            text = "\n".join(line if "  " in line.strip() else wrap(line) for line in text.split("\n"))
        print(text, file=stream, flush=True)
    except OSError:  # nobody reads the rest
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _is_main() -> bool:
    """Whether this is the main process, without importing torch: until it is imported there is only one."""
    distributed = sys.modules.get("contune.distributed")
    return distributed is None or bool(distributed.is_main())


def plural(num: int, noun: str, ending: str = "s") -> str:
    """`1 image`, `1,234 images`"""
    return f"{num:,} {noun}{'' if num == 1 else ending}"


def printable(text: str) -> str:
    """Text for the terminal: line breaks, other control characters and undecodable bytes are escaped."""
    return text if text.isprintable() else "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def show_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Sequence[str] = ()) -> None:
    """Print a table; the columns named in `numbers` are right-aligned."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(column, justify="right" if column in numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(printable, row))
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    console = Console(markup=False, emoji=False, highlight=False, width=None if is_terminal else 160)
    with console.capture() as captured:
        console.print(table)
    emit("\n".join(line.rstrip() for line in captured.get().splitlines()), sys.stdout)


@contextmanager
def progress(title: str, total: int, *, unit: str = "") -> Iterator[Advance]:
    """A progress bar for `total` pieces of work, which `unit` names: `step`, `image`."""
    receiver = _redirection.get()[0]
    if not _is_main():
        yield lambda done, text: None
    elif receiver is not None:
        yield lambda done, text: receiver(ProgressUpdate(title, done, total, text, unit))
    else:
        with progress_of_many([title]) as update:
            yield lambda done, text: update(0, ProgressUpdate("", done, total, text, unit))


@contextmanager
def progress_of_many(names: Sequence[str]) -> Iterator[Callable[[int, ProgressUpdate], None]]:
    """A bar for each job; in a log file, a line every few seconds, and none for a job that ends sooner.

    Call what is yielded with the index of a job and its progress.
    """
    on_terminal = sys.stderr is not None and sys.stderr.isatty()
    time_left = TimeRemainingColumn(compact=True)
    bar = Progress(
        TextColumn(f"{{task.description:<{max([10, *map(len, names)])}}}"),
        BarColumn(bar_width=16),
        TextColumn("{task.fields[unit]}"),
        MofNCompleteColumn(),
        time_left,
        TextColumn("left  {task.fields[text]}"),
        console=Console(stderr=True),
        redirect_stdout=sys.stdout is not None and sys.stdout.isatty(),  # output redirected to a file stays untouched
        disable=not on_terminal,
    )
    for name in names:
        bar.add_task(name, total=None, text="waiting", unit="", title=None, visible=len(names) > 1)
    jobs, shown_at = bar.tasks, [time.monotonic()] * len(names)

    def update(number: int, report: ProgressUpdate) -> None:
        job, now = jobs[number], time.monotonic()
        if report.title != job.fields["title"]:  # a new stage with its own speed
            bar.reset(job.id, total=report.total, completed=report.done, title=report.title, unit=report.unit, text="")
        bar.update(job.id, visible=True, completed=report.done, text=f"{report.title}  {report.text}".strip())
        if not on_terminal and now - shown_at[number] >= SECONDS_BETWEEN_LINES:
            shown_at[number] = now
            count = f"{report.done:,}/{report.total:,}"
            left = f"{time_left.render(job)} left" if job.time_remaining else ""  # not known at first, then 0
            words = (f"{job.description}:", report.title, report.unit, count, report.text, left)
            emit(" ".join(filter(None, words)), sys.stderr)

    with bar:
        yield update
