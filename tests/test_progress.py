"""Progress and tables, as a terminal and as a log file sees them."""

import io
import sys

import pytest

from contune import console, progress
from contune.console import say, show_measures, show_table


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_log_gets_a_line_now_and_then(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("contune.progress.time.monotonic", lambda: now)
    with progress.progress("train", 100, unit="steps") as advance:
        for done in (1, 2, 3, 4):
            now = 6.0 * done
            advance(done, "loss 1.0")
    assert capsys.readouterr().err == "train: 2/100 steps loss 1.0\ntrain: 4/100 steps loss 1.0\n"


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    with progress.progress("train", 10) as advance:
        advance(10, "loss 0.5")
    assert isinstance(sys.stderr, Terminal)
    shown = sys.stderr.getvalue()
    assert "train" in shown
    assert "10/10" in shown
    assert "loss 0.5" in shown


def test_other_processes_are_silent(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (progress, console):
        monkeypatch.setattr(module.distributed, "is_main", lambda: False)
    with progress.progress("train", 10) as advance:
        advance(10, "loss 0.5")
    say("hello")
    show_table(("a",), [("b",)])
    assert capsys.readouterr() == ("", "")


def test_text_comes_out_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    path = "runs/[bold]odd[/bold]/" + "x" * 200
    say(path)
    assert capsys.readouterr().out == path + "\n"


def test_measures_are_a_table_with_their_protocols(capsys: pytest.CaptureFixture[str]) -> None:
    measures = [
        {"name": "knn", "top1": 91.234, "top5": None, "protocol": "k=20"},
        {"name": "linear-fast", "top1": 9.5, "top5": 99.0, "protocol": "L-BFGS"},
        {"name": "of the future", "top1": 1.0, "top5": 2.0, "protocol": "?"},
    ]
    show_measures({"split": "val", "measures": measures})
    head, *rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert head == ["val", "top-1", "%", "top-5", "%", "protocol"]
    assert rows == [
        ["kNN", "91.23", "k=20"],
        ["linear", "probe,", "fast", "9.50", "99.00", "L-BFGS"],
        ["of", "the", "future", "1.00", "2.00", "?"],
    ]


def test_nothing_measured_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    show_measures({"split": "test", "measures": []})
    assert capsys.readouterr().out == "nothing was measured: that takes labels and a test split\n"
