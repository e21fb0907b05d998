"""How a long job shows where it is: a bar on a terminal, now and then a line in a log file.

Several jobs in processes of their own have a bar each in the process that started them, to which they report.
"""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from contune import distributed

Advance = Callable[[int, str], None]
"""Called with how much is done so far and a short text of what goes with it."""

SECONDS_BETWEEN_LINES = 10.0
SECONDS_BETWEEN_REPORTS = 0.2


class Report(NamedTuple):
    """Where a job in another process is."""

    title: str
    done: int
    total: int
    text: str


_receiver: ContextVar[Callable[[Report], None] | None] = ContextVar("receiver", default=None)


@contextmanager
def report_to(receiver: Callable[[Report], None]) -> Iterator[None]:
    """What this thread would show goes to `receiver` instead, a few times a second."""
    last = 0.0

    def receive(report: Report) -> None:
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


@contextmanager
def progress(title: str, total: int, *, unit: str = "") -> Iterator[Advance]:
    """A bar for `total` pieces of work, shown by the main process only."""
    receiver = _receiver.get()
    if not distributed.is_main():
        yield lambda done, text: None
    elif receiver is not None:
        yield lambda done, text: receiver(Report(title, done, total, text))
    elif sys.stderr.isatty():
        with _bar() as bar:
            task = bar.add_task(title, total=total, text="")
            yield lambda done, text: bar.update(task, completed=done, text=text)
    else:
        line = _line_printer()
        yield lambda done, text: line(f"{title}: {done}/{total} {unit} {text}")


@contextmanager
def progress_of_many(names: Sequence[str]) -> Iterator[Callable[[int, Report], None]]:
    """A bar for each job in another process; what is yielded takes the number of a job and where it is."""
    if sys.stderr.isatty():
        with _bar(width=max(map(len, names), default=0)) as bar:
            tasks = [bar.add_task(name, total=None, text="waiting") for name in names]
            titles = [""] * len(names)

            def update(job: int, report: Report) -> None:
                if report.title != titles[job]:  # another stage, with a speed of its own
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
        redirect_stdout=sys.stdout.isatty(),  # what goes to a file is left alone
    )


def _line_printer() -> Callable[[str], None]:
    """For logs: a line every few seconds and none for what is over sooner, so that files stay readable."""
    last = time.monotonic()

    def say(text: str) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= SECONDS_BETWEEN_LINES:
            last = now
            print(text.rstrip(), file=sys.stderr, flush=True)

    return say
