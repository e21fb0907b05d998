"""Progress, sentences and tables, as a terminal and as a log file see them."""

import io
import sys

import pytest

from contune import console
from contune.console import (
    ProgressUpdate,
    plural,
    printable,
    progress,
    progress_of_many,
    redirect_progress,
    redirect_say,
    say,
    show_table,
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(console.time, "monotonic", lambda: self.now)


def test_a_log_gets_a_line_every_few_seconds(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    with progress("train", 100, unit="steps") as advance:
        for done in (1, 2, 3, 4):
            clock.now = 100 + 6.0 * done
            advance(done, "loss 1.0")
    assert capsys.readouterr().err == "train: 2/100 steps loss 1.0\ntrain: 4/100 steps loss 1.0\n"
    with progress_of_many(["seed 0", "seed 1"]) as update:
        clock.now += 11.0
        for job in (0, 1, 0):
            update(job, ProgressUpdate("train", 1, 9, "loss 2.0"))
    assert capsys.readouterr().err == "seed 0: train 1/9 loss 2.0\nseed 1: train 1/9 loss 2.0\n"


def test_a_terminal_gets_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with progress("train", 10) as advance:
        advance(10, "loss 0.5")
    for part in ("train", "10/10", "loss 0.5"):
        assert part in terminal.getvalue()
    with progress_of_many(["seed 0", "a longer name"]) as update:
        update(1, ProgressUpdate("train", 1, 9, "loss 2.0"))
        update(1, ProgressUpdate("probe", 3, 5, ""))
    waiting, last = terminal.getvalue().splitlines()[-3:-1]  # the line below turns the cursor on again
    assert "seed 0" in waiting
    assert "waiting" in waiting
    for part in ("a longer name", "3/5", "probe"):
        assert part in last


def test_a_worker_sends_progress_and_sentences_to_its_parent(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    received: list[ProgressUpdate] = []
    said: list[str] = []
    with redirect_progress(received.append), redirect_say(said.append), progress("train", 9, unit="steps") as advance:
        for done, seconds in ((1, 0.0), (2, 0.1), (3, 0.3), (9, 0.31)):
            clock.now = 100.0 + seconds
            advance(done, "")
        say("hello")
    assert [report.done for report in received] == [1, 3, 9], "a few times a second, and the last"
    assert said == ["hello"]
    with progress("train", 9) as advance:
        advance(1, "")
    assert len(received) == 3
    assert capsys.readouterr() == ("", "")


def test_other_ranks_are_silent(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console.distributed, "is_main", lambda: False)
    with progress("train", 10) as advance:
        advance(10, "loss 0.5")
    say("hello")
    show_table(("a",), [("b",)])
    assert capsys.readouterr() == ("", "")


def test_text_is_printed_unchanged(capsys: pytest.CaptureFixture[str]) -> None:
    path = "runs/[bold]odd[/bold]/" + "x" * 200
    say(path)
    assert capsys.readouterr().out == path + "\n"
    show_table(("name", "%"), [("[red]a", "1.00"), ("b", "22.00")], numbers=("%",))
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["name", "%"], ["[red]a", "1.00"], ["b", "22.00"],
    ]  # fmt: skip
    assert printable("a\nb") == "a\\nb"
    assert [plural(1, "class", "es"), plural(1234, "image")] == ["1 class", "1,234 images"]
