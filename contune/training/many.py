"""Several runs at a time on one device, each in its own process.

While one run starts, compiles or is evaluated, another has the GPU. Every run has its own folder: one that fails or is
stopped takes nothing from the others, and finished runs are reused.
"""

import os
import signal
import sys
from collections.abc import Callable, Sequence
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch

from contune.config import Config
from contune.console import ProgressUpdate, progress_of_many, redirected
from contune.data.images import default_workers
from contune.device import available_cores
from contune.errors import UserError
from contune.run import RunFolder
from contune.training.session import train
from contune.training.signals import RESUME_CODE, Stopped, put_off, stoppable

MOST_ON_A_GPU = 4
SECONDS_TO_STOP = 20.0
"""To finish a step and save; a cluster that has sent SIGTERM usually waits 30 before it kills."""
USER_ERROR_CODE = 2


class Job(NamedTuple):
    """A run to do."""

    config: Config
    folder: Path
    title: str = ""
    """For its progress bar; default: the folder's name."""
    work: Callable[[Config, RunFolder], dict[str, Any]] = train
    """What does it, and leaves a result in the folder; it is pickled for another process."""


def run_many(jobs: Sequence[Job], parallel: int | None = None) -> list[dict[str, Any]]:
    """The result of each job, in order; that of a failed one is {"error": a sentence, "details": what it printed}.

    `parallel` runs share the device at a time; default: up to four on a GPU, one on a CPU. Finished runs are reused.
    Ctrl-C and SIGTERM stop all of them; called again, each resumes.
    """
    parallel = default_parallel(jobs) if parallel is None else parallel
    results = list(map(_known, jobs))
    waiting = [number for number, result in enumerate(results) if result is None]
    num_runs = max(1, min(parallel, len(waiting)))
    running: dict[Connection, tuple[int, SpawnProcess]] = {}
    usual_threads = os.environ.get("OMP_NUM_THREADS")
    with (
        progress_of_many([job.title or job.folder.name for job in jobs]) as show,
        TemporaryDirectory() as logs,
        stoppable(),
    ):
        for number, known in enumerate(results):
            if known is not None:
                show(number, _ended(known))
        # Libraries read the number of threads when a new process loads them.
        os.environ["OMP_NUM_THREADS"] = str(threads_of_each(num_runs))
        try:
            while waiting or running:
                while waiting and len(running) < parallel:
                    number = waiting.pop(0)
                    with put_off():  # so that no process is started and then forgotten
                        reports, process = _start(jobs[number], num_runs, Path(logs) / str(number))
                        running[reports] = number, process
                    show(number, ProgressUpdate("starting", 0, 1, ""))
                for ready in wait(list(running)):
                    assert isinstance(ready, Connection)
                    number, process = running[ready]
                    try:
                        update = ready.recv()
                    except (EOFError, ConnectionResetError):  # it has ended
                        del running[ready]
                        process.join()
                        result = results[number] = _result(jobs[number], process, Path(logs) / str(number))
                        update = _ended(result)
                    show(number, update)
        finally:  # however the work ends, no process outlives it. Files are written atomically, so none is damaged.
            os.environ.pop("OMP_NUM_THREADS")
            if usual_threads is not None:
                os.environ["OMP_NUM_THREADS"] = usual_threads
            for _, process in running.values():
                process.terminate()
            for _, process in running.values():
                process.join(SECONDS_TO_STOP)
                process.kill()
                process.join()
    return [result for result in results if result is not None]


def default_parallel(jobs: Sequence[Job]) -> int:
    devices = {job.config.run.device for job in jobs}
    on_gpu = all(name.startswith("cuda") or (name == "auto" and torch.cuda.is_available()) for name in devices)
    return min(len(jobs), MOST_ON_A_GPU) if on_gpu else 1


def _known(job: Job) -> dict[str, Any] | None:
    """The result of a job that need not be started: it is finished, or not possible in its folder."""
    folder = RunFolder(job.folder)
    try:
        folder.check(job.config)
        return folder.result()
    except UserError as error:
        return {"error": str(error), "details": ""}


def _ended(result: dict[str, Any]) -> ProgressUpdate:
    return ProgressUpdate("failed", 1, 1, result["error"]) if "error" in result else ProgressUpdate("done", 1, 1, "")


def _start(job: Job, num_runs: int, log: Path) -> tuple[Connection, SpawnProcess]:
    """A job in a process of its own, and the connection over which it reports its progress."""
    context = get_context("spawn")
    reports, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(job, num_runs, log, theirs))
    # A process started with Ctrl-C blocked never sees it. The process that started it decides when to stop.
    resource_tracker.ensure_running()  # else it starts with the first process and unblocks signals
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    process.start()
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    theirs.close()  # so that the connection ends with the process
    return reports, process


def _result(job: Job, process: SpawnProcess, log: Path) -> dict[str, Any]:
    """Of a process that has ended."""
    result = RunFolder(job.folder).result()
    if result is not None:
        return result
    details = log.read_text(errors="replace") if log.exists() else ""
    code = process.exitcode or 0
    last = next((line for line in reversed(details.splitlines()) if line.strip()), f"exit code {code}")
    if code == USER_ERROR_CODE:
        cause = last
    elif code == RESUME_CODE:
        cause = "its process was stopped by SIGTERM; the same command resumes from the last checkpoint"
    elif code < 0:
        cause = f"its process was ended by {signal.Signals(-code).name}; if memory ran out, lower --parallel"
    else:
        cause = f"its process failed: {last}"
    return {"error": cause, "details": details}


def threads_of_each(num_runs: int) -> int:
    """CPU threads of each of several runs; OMP_NUM_THREADS is an upper bound."""
    threads = max(1, available_cores() // num_runs)
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return min(threads, int(asked)) if asked.isdigit() else threads


def _work(job: Job, num_runs: int, log: Path, reports: Connection) -> None:
    """Runs in the new process."""
    with log.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    torch.set_num_threads(threads_of_each(num_runs))
    folder = RunFolder(job.folder)
    if job.config.data.workers is None:
        job.config.data.workers = max(1, default_workers() // num_runs)
    try:
        with redirected(reports.send):
            result = job.work(job.config, folder)
    except UserError as error:
        print(" ".join(str(error).split()))
        sys.exit(USER_ERROR_CODE)
    except Stopped:
        sys.exit(RESUME_CODE)
    if num_runs > 1:
        folder.write_result({**result, "note": f"up to {num_runs} runs at a time shared this machine"})
