"""The command line as tests call it: in this process, or in one of its own that can be killed or multiplied."""

import io
import json
import os
import signal
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from multiprocessing import get_context, set_forkserver_preload
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from contune.cli import main

PLAIN = ("run.loggers=none", "run.report=false", "eval.start=false")
"""For runs whose subject is neither."""
FORKS = sys.platform == "linux" and sys.version_info < (3, 12) and not torch.cuda.is_available()
START_METHOD = "fork" if FORKS else "forkserver"
"""A fork imports nothing, which saves seconds, but cannot use a GPU. Python 3.12 warns of forks beside threads."""
set_forkserver_preload(["contune.training.session", "contune.recipes"])


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


def contune(*arguments: str | Path) -> Outcome:
    """`contune ARGUMENTS`, with what it printed and how it ended."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with patch.object(sys, "argv", ["contune", *map(str, arguments)]), redirect_stdout(out), redirect_stderr(err):
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
    return Outcome(code, out.getvalue(), err.getvalue())


def train(folder: Path, *arguments: str | Path) -> dict[str, Any]:
    """A run that has to succeed, into `folder`; its result.json."""
    outcome = contune("train", *arguments, *PLAIN, "--out", folder)
    assert outcome.code == 0, outcome.err
    return read_json(folder / "result.json")


def start(*arguments: str | Path, launcher: tuple[str, ...] = ()) -> "subprocess.Popen[str]":
    """`python -m contune ARGUMENTS` in a process of its own, on one thread like the tests themselves.

    Ctrl-C reaches it even where a shell that started the tests in the background has it ignored.
    """
    return subprocess.Popen(
        [sys.executable, "-m", *launcher, *(("-m",) if launcher else ()), "contune", *map(str, arguments)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def branch_off(*arguments: str | Path, **environment: str) -> BaseProcess:
    """`contune ARGUMENTS` in a process that starts faster and whose exit code is that of the command."""
    context: Any = get_context(START_METHOD)
    process: BaseProcess = context.Process(target=_work, args=(arguments, environment))
    process.start()
    return process


def _work(arguments: tuple[str | Path, ...], environment: dict[str, str]) -> None:
    torch.set_num_threads(1)
    os.environ.update(environment)
    outcome = contune(*arguments)
    print(outcome.out, outcome.err)
    sys.exit(outcome.code)


def last_line(printed: str) -> str:
    """The sentence that a run ended with; a slow machine has lines of progress before it."""
    return "".join(printed.splitlines()[-1:])


def read_json(path: Path) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(path.read_text())
    return values


def read_lines(folder: Path) -> list[dict[str, float]]:
    """metrics.jsonl without the column that is different every time."""
    lines = [json.loads(text) for text in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "views_per_second"} for line in lines]
