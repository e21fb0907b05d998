"""Progress and tables, as a terminal and as a log file sees them."""

import io
import sys

import pytest

from contune import console
from contune.console import say, show_measures, show_table


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_log_gets_a_line_now_and_then(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("contune.console.time.monotonic", lambda: now)
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


REPORTS = [progress.Report("train", 1, 9, "loss 2.0"), progress.Report("probe", 3, 5, "")]


def test_several_jobs_have_a_bar_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    with progress.progress_of_many(["seed 0", "a longer name"]) as update:
        update(1, REPORTS[0])
        update(1, REPORTS[1])
    assert isinstance(sys.stderr, Terminal)
    waiting, last = sys.stderr.getvalue().splitlines()[-3:-1]  # below them the cursor is turned on again
    assert "seed 0" in waiting
    assert "waiting" in waiting
    for part in ("a longer name", "3/5", "probe"):
        assert part in last


def test_several_jobs_in_a_log(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("contune.console.time.monotonic", lambda: now)
    with progress.progress_of_many(["seed 0", "seed 1"]) as update:
        now = 11.0
        for job in (0, 1, 0):
            update(job, REPORTS[0])
        now = 22.0
        update(0, REPORTS[1])
    assert capsys.readouterr().err == (
        "seed 0: train 1/9 loss 2.0\nseed 1: train 1/9 loss 2.0\nseed 0: probe 3/5\n"
    )  # fmt: skip


def test_reports_go_elsewhere_a_few_times_a_second(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr("contune.console.time.monotonic", lambda: now)
    received: list[progress.Report] = []
    with progress.report_to(received.append), progress.progress("train", 9, unit="steps") as advance:
        for done, seconds in ((1, 0.0), (2, 0.1), (3, 0.3), (9, 0.31)):
            now = 100.0 + seconds
            advance(done, "")
    assert [report.done for report in received] == [1, 3, 9]
    assert received[0] == progress.Report("train", 1, 9, "")
    with progress.progress("train", 9) as advance:
        advance(1, "")
    assert len(received) == 3
    assert capsys.readouterr() == ("", "")


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
    assert capsys.readouterr().out == "nothing was measured: there are no labels, or no split to measure on\n"
