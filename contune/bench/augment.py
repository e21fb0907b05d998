"""`contune bench augment`: views a second of contune's augmentation beside other libraries'."""

import random
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any

import torch

from contune.bench import record
from contune.bench.augment_field import baseline, everyone
from contune.bench.augment_plot import draw
from contune.bench.augment_task import MEAN, STD, Contestant, Started, Task, check_views
from contune.bench.failure import Failure, attempt
from contune.bench.request import chosen, clocked_device, counter
from contune.bench.timing import Summary, summary_of
from contune.console import progress, say, show_table
from contune.data.augment.checks import check_integer
from contune.data.augment.policies import policy_options
from contune.errors import UserError

ROUNDS = 7
_WARMUPS = 2

Row = dict[str, Any]


@dataclass(kw_only=True)
class Runner:
    """A contestant at its task, and what has been measured of it so far."""

    contestant: Contestant
    started: Started | None = None
    calls: int = 1
    """In a lap."""
    ms: dict[int, float] = field(default_factory=dict)
    """A call's, by round."""
    problem: str = ""
    """Why it is out of the race; empty while it is in."""


def run_augment_bench(
    *,
    policies: Sequence[str],
    num_views: int = 512,
    image_size: int = 32,
    device: str = "auto",
    seconds: float = 3.0,
    only: Sequence[str] = (),
    out: Path | None = None,
    contestants: Sequence[Contestant] | None = None,
) -> dict[str, Any]:
    """Times every contestant at every policy; returns what is also written to `out` as JSON.

    Args:
        policies: names; contune has them all, its peers some.
        num_views: in a call, of as many images. image_size: of images and views.
        seconds: for each contestant at each policy, give or take, after it was warmed up.
        only: names, or beginnings of names, of the contestants that take part; none, all of them.
        out: the JSON file, with a drawing beside it; in benchmarks/results if not given.
        contestants: instead of everyone who can be found.
    """
    where = _check_request(policies, num_views, image_size, device, seconds)
    everybody, absent = (list(contestants), []) if contestants is not None else everyone(list(policies), where)
    everybody = chosen(everybody, only)
    out = out or record.default_path("augment", where)
    record.make_ready(out, "augment")
    if absent:
        say(f"not installed, so not compared: {', '.join(absent)}")
    plan = {
        "num_views": num_views, "image_size": image_size, "mean": MEAN, "std": STD, "seconds": seconds,
        "baseline": baseline(where), "sources": {c.name: c.source for c in everybody}, "not_installed": absent,
    }  # fmt: skip
    result: dict[str, Any] = {}
    rows: list[Row] = []
    with progress("bench augment", len(everybody) * (1 + ROUNDS), unit="laps") as advance:
        count = counter(advance)
        for policy in dict.fromkeys(policies):
            task = Task(policy=policy, num_views=num_views, image_size=image_size, device=where)
            runners = [Runner(contestant=c) for c in everybody if c.policy == policy]
            before, own = rows, []
            for runner in _race(runners, task, seconds / ROUNDS):
                count(1, f"{policy}: {runner.contestant.name}")
                own = [_row(runner, runners, task) for runner in runners if runner.ms or runner.problem]
                rows = before + own
                result = {"bench": "augment", **record.circumstances(where), **plan, "rows": rows}
                record.write(result, out)  # so that a run that is stopped leaves what it has
            _show(policy, own)
    say(f"\nrows     {out}\ndrawing  {draw(result, out)}")
    return result


def _check_request(
    policies: Sequence[str], num_views: int, image_size: int, device: str, seconds: float
) -> torch.device:
    if not policies:
        raise UserError("there is nothing to measure; name policies, such as autoaugment,simaugment")
    for policy in policies:
        policy_options(policy)  # knows their names
    check_integer("batch", num_views, 1)
    check_integer("image_size", image_size, 8)
    if not seconds > 0:
        raise UserError(f"seconds must be above 0, got {seconds:g}")
    return clocked_device(device)


def _race(runners: list[Runner], task: Task, lap_seconds: float) -> Iterator[Runner]:
    """Starts all, then has them run laps in turns, so that all meet the same machine; yields who has just run."""
    shuffled = random.Random(0)
    with ExitStack() as stack:
        for runner in runners:
            outcome = attempt(partial(_warm_up, runner, task, lap_seconds, stack), task.device)
            runner.problem = outcome.reason if isinstance(outcome, Failure) else ""
            yield runner
        for index in range(ROUNDS):
            for runner in shuffled.sample(runners, len(runners)):
                if not runner.problem:
                    lap = attempt(partial(_lap, runner, task.device), task.device)
                    if isinstance(lap, Failure):
                        runner.problem = lap.reason
                    else:
                        runner.ms[index] = lap
                yield runner


def _warm_up(runner: Runner, task: Task, lap_seconds: float, stack: ExitStack) -> None:
    runner.started = stack.enter_context(runner.contestant.start(task))
    for _ in range(_WARMUPS):
        check_views(runner.started.call(), task)
    runner.calls = max(1, runner.started.ahead)
    runner.calls = max(runner.calls, round(1000 * lap_seconds / _lap(runner, task.device)))


def _lap(runner: Runner, device: torch.device) -> float:
    """Milliseconds of a call, over as many calls as were asked for."""
    assert runner.started is not None
    for _ in range(runner.started.ahead):
        runner.started.call()
    _wait(device)
    start = time.perf_counter()
    for _ in range(runner.calls):
        runner.started.call()
    _wait(device)
    ms = 1000 * (time.perf_counter() - start) / runner.calls
    runner.started.pause()
    return ms


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _row(runner: Runner, runners: list[Runner], task: Task) -> Row:
    first = next((r for r in runners if r.contestant.name == baseline(task.device) and not r.problem), None)
    timed = bool(runner.ms) and not runner.problem
    summary = asdict(summary_of(runner.ms, first.ms if first else None)) if timed else {}
    return {
        "policy": task.policy,
        "name": runner.contestant.name,
        "views_per_second": round(1000 * task.num_views / summary["ms"], 1) if timed else None,
        **{key.name: summary.get(key.name) for key in fields(Summary)},
        "calls_a_lap": runner.calls,
        "status": "timed" if timed else runner.problem,
        "note": runner.started.note if runner.started else "",
    }


def _show(policy: str, rows: Sequence[Row]) -> None:
    """Views a second with their quartiles, and how many times contune's time."""
    if not rows:
        return
    say(f"\n{policy}")
    columns = ("contestant", "views/s", "quartiles", "× contune's time", "remark")
    show_table(columns, [_cells(row) for row in rows], numbers=columns[1:4])


def _cells(row: Row) -> tuple[str, ...]:
    if row["views_per_second"] is None:
        return row["name"], "–", "", "", row["status"]
    rates = [row["views_per_second"] * row["ms"] / row[quartile] for quartile in ("ms_q3", "ms_q1")]
    ratio = "" if row["ratio"] is None else f"{row['ratio']:.2f}"
    return row["name"], f"{row['views_per_second']:,.0f}", " – ".join(f"{r:,.0f}" for r in rates), ratio, row["note"]
