"""Progress, sentences and tables, as a terminal and as a log file see them."""

import io
import os
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TextIO

import pytest

from contune import console
from contune.console import ProgressUpdate, progress, progress_of_many, say, show_table


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    return now


def test_a_log_gets_a_line_every_few_seconds(capsys: pytest.CaptureFixture[str], clock: list[float]) -> None:
    with progress("train", 100, unit="step") as advance:
        for done in (1, 2, 3, 4):
            clock[0] += 6
            advance(done, "loss 1.0")
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("train: step 2/100 loss 1.0")
    assert re.fullmatch(r"train: step 4/100 loss 1\.0 \d\d:\d\d left", lines[1])
    with progress_of_many(["seed 0", "seed 1"]) as update:
        clock[0] += 11
        for job in (0, 1, 0):
            update(job, ProgressUpdate("train", 1, 9, "loss 2.0", "step"))
    assert capsys.readouterr().err == "seed 0: train step 1/9 loss 2.0\nseed 1: train step 1/9 loss 2.0\n"


def test_other_ranks_are_silent(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("contune.distributed.is_main", lambda: False)
    with progress("train", 10) as advance:
        advance(10, "loss 0.5")
    say("hello")
    show_table(("a",), [("b",)])
    assert capsys.readouterr() == ("", "")


def test_text_is_printed_unchanged(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    path = "runs/[bold]odd[/bold]/" + "x" * 200
    say(path)
    show_table(("name", "%"), [("[red]a", "1.00"), ("b", "22.00")], numbers=("%",))
    assert capsys.readouterr().out.split() == [path, "name", "%", "[red]a", "1.00", "b", "22.00"]
    say("first\nodd \x1b[2J\x9b name")
    show_table(("class",), [("red\n\x1b]0;",)])
    assert capsys.readouterr().out == "first\nodd \\x1b[2J\\x9b name\nclass\nred\\n\\x1b]0;\n"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    say("word-word " * 9 + "\ntrain  " + path)
    assert capsys.readouterr().out.splitlines() == [("word-word " * 8).strip(), "word-word", "train  " + path]
    assert [console.plural(1, "class", "es"), console.plural(1234, "image")] == ["1 class", "1,234 images"]


def closed_pipe() -> TextIO:
    reading, writing = os.pipe()
    os.close(reading)
    return open(writing, "w")


def terminal() -> TextIO:
    return open(os.openpty()[1], "w")


STREAMS: list[Callable[[], TextIO | None]] = [closed_pipe, partial(Path("/dev/full").open, "w"), terminal]
STREAMS += [lambda: io.TextIOWrapper(io.BytesIO(), encoding="ascii"), lambda: None]


@pytest.mark.parametrize("make", STREAMS)
def test_no_terminal_ends_a_run(
    make: Callable[[], TextIO | None], monkeypatch: pytest.MonkeyPatch, clock: list[float]
) -> None:
    stream = make()
    monkeypatch.setattr("sys.stdout", stream)
    monkeypatch.setattr("sys.stderr", stream)
    with progress("train", 9) as advance:
        clock[0] += 11
        advance(1, "½")
    show_table(("✓",), [("日本",)])
    say("8×8, \udcff")
    if stream is not None:
        if isinstance(stream.buffer, io.BytesIO):
            assert b"\\u2713\n\\u65e5\\u672c\n" in stream.buffer.getvalue()
        stream.close()
