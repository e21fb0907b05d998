"""Several runs at a time, each in a process of its own, on one device.

While one starts, compiles or is measured, another has the GPU. Every run has its folder, so that one that fails or is
stopped takes nothing from the others, and what has been done is not done again.
"""

import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import deepcopy
from dataclasses import dataclass
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch

from contune.config import Config
from contune.console import Report, progress_of_many, report_to
from contune.data.stream import default_workers
from contune.device import available_cores
from contune.errors import UserError
from contune.run import RunFolder
from contune.train.session import train
from contune.train.sharing import side_by_side
from contune.train.signals import RESUME_CODE, Stopped, put_off, stoppable

MOST_ON_A_GPU = 4
SECONDS_TO_STOP = 20.0
"""To finish a step and save; a cluster that has sent SIGTERM usually gives 30 before it kills."""


class Job(NamedTuple):
    """A run to be done."""

    config: Config
    folder: Path
    title: str = ""
    """What its progress is called; the folder's name if empty."""
    work: Callable[[Config, RunFolder], dict[str, Any]] = train
    """What does it, and leaves a result in the folder; it is sent to another process."""


def run_many(jobs: Sequence[Job], parallel: int | None = None) -> list[dict[str, Any]]:
    """The result of each job, in order; that of one that failed is {"error": a sentence, "details": what it printed}.

    `parallel` runs share the device at a time; None: up to four on a GPU, one on a CPU. A job whose folder holds its
    finished run is not started. Ctrl-C and SIGTERM stop all of them; called again, each goes on from where it was.
    """
    _check(jobs, parallel)
    if parallel is None:
        parallel = default_parallel(jobs)
    results = [_known(job) for job in jobs]
    waiting = [number for number, result in enumerate(results) if result is None]
    share = _Share.of(min(parallel, len(waiting)))
    running: dict[Connection, _Run] = {}
    names = [job.title or job.folder.name for job in jobs]
    with (
        progress_of_many(names) as show,
        TemporaryDirectory() as logs,
        stoppable(),
        _sharing(jobs, share) as environment,
        _all_stopped(running),
    ):
        for number, known in enumerate(results):
            if known is not None:
                show(number, _ended(known))
        while waiting or running:
            while waiting and len(running) < parallel:
                number = waiting.pop(0)
                with put_off():  # so that no process is started and not known of
                    run = _Run(number, jobs[number], share, Path(logs) / str(number), environment)
                    running[run.reports] = run
                show(number, Report("starting", 0, 1, ""))
            for reports in wait(list(running)):
                assert isinstance(reports, Connection)
                run = running[reports]
                message = run.receive()
                if message is None:
                    result = results[run.number] = run.result()
                    del running[reports]
                    message = _ended(result)
                show(run.number, message)
    return [result for result in results if result is not None]


def default_parallel(jobs: Sequence[Job]) -> int:
    return min(len(jobs), MOST_ON_A_GPU) if _on_gpu(jobs) else 1


def _on_gpu(jobs: Sequence[Job]) -> bool:
    """Whether all of them are."""
    devices = {job.config.run.device for job in jobs}
    return all(name.startswith("cuda") or (name == "auto" and torch.cuda.is_available()) for name in devices)


def _sharing(jobs: Sequence[Job], share: "_Share") -> AbstractContextManager[dict[str, str]]:
    return side_by_side() if share.num_runs > 1 and _on_gpu(jobs) else nullcontext({})


def check_parallel(parallel: int | None) -> None:
    if parallel is not None and parallel < 1:
        raise UserError(f"{parallel} runs at a time would never end; take 1 or more")


def _check(jobs: Sequence[Job], parallel: int | None) -> None:
    check_parallel(parallel)
    folders = [job.folder for job in jobs]
    twice = next((folder for folder in folders if folders.count(folder) > 1), None)
    if twice is not None:
        raise UserError(f"two runs are to go to {twice}; name each once")


def _known(job: Job) -> dict[str, Any] | None:
    """The result of a job that need not be started: finished before, or not possible in its folder."""
    folder = RunFolder(job.folder)
    try:
        folder.check(job.config)
        return folder.result()
    except UserError as error:
        return {"error": str(error), "details": ""}


def _ended(result: dict[str, Any]) -> Report:
    return Report("failed", 1, 1, result["error"]) if "error" in result else Report("done", 1, 1, "")


@dataclass(frozen=True)
class _Share:
    """What each of several processes may take of the machine."""

    num_runs: int
    threads: int
    workers: int

    @classmethod
    def of(cls, num_runs: int) -> "_Share":
        num = max(1, num_runs)
        threads = max(1, available_cores() // num)
        asked = os.environ.get("OMP_NUM_THREADS", "")
        if asked.isdigit():
            threads = min(threads, int(asked))
        return cls(num, threads, max(1, default_workers() // num))


class _Run:
    """A job in its process, from start to result."""

    def __init__(self, number: int, job: Job, share: _Share, log: Path, environment: dict[str, str]) -> None:
        self.number, self.job, self.log = number, job, log
        self.error: str | None = None
        context = get_context("spawn")
        self.reports, theirs = context.Pipe(duplex=False)
        self.process: SpawnProcess = context.Process(target=_run, args=(job, share, log, theirs))
        with (
            _environment(OMP_NUM_THREADS=str(share.threads), **environment),  # read when libraries are loaded
            _uninterrupted(),
        ):
            self.process.start()
        theirs.close()  # so that the end of the process is the end of what it reports

    def receive(self) -> Report | None:
        """Where it is; None when it has ended, of which bad input, said before, is the reason."""
        try:
            message: Report | UserError = self.reports.recv()
        except (EOFError, ConnectionResetError):
            return None
        if isinstance(message, UserError):
            self.error = str(message)
            return self.receive()
        return message

    def result(self) -> dict[str, Any]:
        self.process.join()
        self.reports.close()
        result = RunFolder(self.job.folder).result()
        if result is not None:
            return result
        details = self.log.read_text(errors="replace") if self.log.exists() else ""
        return {"error": self.error or self._cause(details), "details": details}

    def _cause(self, details: str) -> str:
        code = self.process.exitcode or 0
        if code < 0:
            killed = signal.Signals(-code).name
            return f"its process was ended by {killed}; if the system ran out of memory, lower --parallel"
        if code == RESUME_CODE:
            return "its process was stopped by SIGTERM; the same command goes on from the last checkpoint"
        lines = [line for line in details.splitlines() if line.strip()]
        return f"its process failed: {lines[-1] if lines else f'exit code {code}'}"

    def stop(self) -> None:
        """Has been asked to by SIGTERM."""
        self.process.join(SECONDS_TO_STOP)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self.reports.close()


@contextmanager
def _all_stopped(running: dict[Connection, _Run]) -> Iterator[None]:
    """Whatever ends the work early, no process outlives it. Files are written whole or not at all, so none is lost."""
    try:
        yield
    finally:
        for run in running.values():
            run.process.terminate()
        for run in running.values():
            run.stop()


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ctrl-C waits for the end of this block, and a process started in it never hears of it, not while it imports.

    The process that started it decides.
    """
    resource_tracker.ensure_running()  # else it is started with the first process, and lets interruptions in again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _environment(**values: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _run(job: Job, share: _Share, log: Path, reports: Connection) -> None:
    """In the process of its own."""
    with log.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    torch.set_num_threads(share.threads)
    config, folder = deepcopy(job.config), RunFolder(job.folder)
    if config.data.workers is None:
        config.data.workers = share.workers
    try:
        with report_to(reports.send):
            result = job.work(config, folder)
    except UserError as error:
        reports.send(UserError(str(error)))
        sys.exit(2)
    except Stopped:
        sys.exit(RESUME_CODE)
    if share.num_runs > 1:
        folder.write_result({**result, "note": f"up to {share.num_runs} runs at a time shared this machine"})
