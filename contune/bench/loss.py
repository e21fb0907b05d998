"""`contune bench loss`: the contrastive losses of contune beside those of its peers."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import torch

from contune.bench import record
from contune.bench.agreement import CHECK_SIZE, TOLERANCES, Check, check
from contune.bench.batch import LOSSES, Batch, check_request, make_batch
from contune.bench.contestants import BASELINE, K1, K2, TEMPERATURE, Contestant
from contune.bench.failure import Failure, attempt, release_memory
from contune.bench.field import everyone
from contune.bench.memory import cpu_peak_bytes, does_not_fit, gpu_peak_bytes
from contune.bench.plot import draw
from contune.bench.request import chosen, clocked_device, counter
from contune.bench.show import show_checks, show_rows
from contune.bench.timing import Runner, Summary, is_crowded, race, summarise, warm_up
from contune.console import progress, say
from contune.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One benchmark: what is measured, and how."""

    contestants: list[Contestant]
    sizes: list[int]
    dims: list[int]
    num_classes: int
    device: torch.device
    dtype: str
    seconds: float
    host_memory: bool
    recorded: bool

    def batch(self, loss: str, num: int, dim: int) -> Batch:
        return make_batch(loss, num, dim, num_classes=self.num_classes, device=self.device, dtype=self.dtype)


def run_loss_bench(
    *,
    sizes: Sequence[int],
    dims: Sequence[int],
    num_classes: int = 100,
    device: str = "auto",
    dtype: str = "float32",
    seconds: float = 1.0,
    memory: bool = False,
    recorded: bool = False,
    compiled: bool | None = None,
    only: Sequence[str] = (),
    out: Path | None = None,
    contestants: Sequence[Contestant] | None = None,
) -> dict[str, Any]:
    """Checks, times and weighs every contestant at every size; returns what is also written to `out` as JSON.

    Args:
        sizes: N, embeddings in a batch, all views counted. dims: d, their length.
        dtype: of the embeddings. seconds: for each contestant at each size, give or take.
        memory: on the CPU, also measure peak memory, each in a process of its own. On a GPU it always is.
        recorded: on a GPU, everyone's pass is recorded as a CUDA graph and replayed, as in a recorded training step.
        compiled: whether `torch.compile` of the dense form takes part; None, on a GPU only.
        only: names, or beginnings of names, of the contestants that take part; none, all of them.
        out: the JSON file, with a drawing beside it; in benchmarks/results if not given.
        contestants: instead of everyone who can be found.
    """
    check_request(list(sizes), list(dims), num_classes, dtype, seconds)
    where = clocked_device(device)
    if recorded and where.type != "cuda":
        raise UserError(f"only a CUDA device records passes, and this is {where}; leave --recorded out")
    compiled = where.type == "cuda" if compiled is None else compiled
    field, absent = (list(contestants), []) if contestants is not None else everyone(where, compiled=compiled)
    field = chosen(field, only)
    plan = Plan(
        contestants=field,
        sizes=sorted(set(sizes)),
        dims=sorted(set(dims)),
        num_classes=num_classes,
        device=where,
        dtype=dtype,
        seconds=seconds,
        host_memory=memory and where.type == "cpu",
        recorded=recorded,
    )
    out = out or record.default_path("loss", where)
    record.make_ready(out, "loss")
    if absent:
        say(f"not installed, so not compared: {', '.join(absent)}")
    result: dict[str, Any] = {}
    for checks, rows in _run(plan):
        # After every size, so that a run that is stopped leaves what it has measured.
        result = _result(plan, checks, rows, absent)
        record.write(result, out)
    drawings = draw(result, out)
    say(f"\nrows     {out}\ndrawing  {', '.join(str(path) for path in drawings)}")
    return result


def _run(plan: Plan) -> Iterator[tuple[list[Check], list[dict[str, Any]]]]:
    """Everything measured so far, size by size."""
    checks: list[Check] = []
    rows: list[dict[str, Any]] = []
    pieces = len(plan.contestants) * len(plan.dims) * (1 + len(plan.sizes))
    with progress("bench loss", pieces, unit="pieces") as advance:
        count = counter(advance)
        for dim in plan.dims:
            checks_of_dim = list(_checks(plan, dim, count))
            checks += checks_of_dim
            show_checks(checks_of_dim)
            passed = {(c.name, c.loss) for c in checks_of_dim if c.passed}
            for num in plan.sizes:
                if any("compile" in c.name for c in plan.contestants):
                    torch.compiler.reset()  # it gives up after eight shapes otherwise
                rows_of_size = [
                    row
                    for loss in LOSSES
                    for row in _measure(plan, [c for c in plan.contestants if c.loss == loss], passed, num, dim, count)
                ]
                rows += rows_of_size
                show_rows(rows_of_size)
                yield checks, rows


def _checks(plan: Plan, dim: int, count: Callable[[int, str], None]) -> Iterator[Check]:
    for contestant in plan.contestants:
        count(0, f"is {contestant.name} right?")
        yield check(contestant, dim, num_classes=plan.num_classes, device=plan.device, dtype=plan.dtype)
        count(1, "")


def _measure(
    plan: Plan,
    contestants: list[Contestant],
    passed: set[tuple[str, str]],
    num: int,
    dim: int,
    count: Callable[[int, str], None],
) -> list[dict[str, Any]]:
    """The rows of one loss at one size, of those whose numbers are right."""
    runners = [Runner(contestant=c, recorded=plan.recorded) for c in contestants if (c.name, c.loss) in passed]
    if not runners:
        count(len(contestants), "")
        return []
    batch = plan.batch(runners[0].contestant.loss, num, dim)
    for runner in runners:
        count(0, f"{runner.contestant.loss} N={num:,}: {runner.contestant.name}")
        _prepare(plan, runner, batch)
    _compare_values(runners, TOLERANCES[plan.dtype])
    in_race = [runner for runner in runners if not runner.problem]
    title = f"{contestants[0].loss} N={num:,}"
    race(in_race, batch, seconds=plan.seconds, on_round=lambda index: count(0, f"{title}: round {index}"))
    count(len(contestants), title)
    return [_row(runner, runners, num, dim) for runner in runners]


def _prepare(plan: Plan, runner: Runner, batch: Batch) -> None:
    """Warms up and weighs; the memory of one is given back before the next."""
    runner.problem = does_not_fit(runner.contestant, batch.z_ND.shape[0], plan.device) or ""
    if runner.problem:
        return
    runner.problem = warm_up(runner, batch) or ""
    if not runner.problem:
        peak = _peak(plan, runner.contestant, batch)
        runner.peak_bytes = None if isinstance(peak, Failure) else peak


def _peak(plan: Plan, contestant: Contestant, batch: Batch) -> int | Failure | None:
    if plan.device.type == "cuda":
        peak = attempt(lambda: gpu_peak_bytes(contestant, batch), plan.device)
        if is_crowded(batch):
            release_memory(plan.device)
        return peak
    if not plan.host_memory:
        return None
    num, dim = batch.z_ND.shape
    return cpu_peak_bytes(contestant, num, dim, num_classes=plan.num_classes, dtype=plan.dtype)


def _compare_values(runners: list[Runner], tolerance: float) -> None:
    """At full size too: a kernel can be right on a small batch and wrong on a large one."""
    baseline = next((r.value for r in runners if r.contestant.name == BASELINE), None)
    for runner in runners:
        if baseline is None or runner.value is None or runner.contestant.timing_only:
            continue
        if not abs(runner.value - baseline) <= tolerance * abs(baseline):
            runner.problem = f"disagrees at this size: {runner.value:.6g} where {BASELINE} has {baseline:.6g}"


def _row(runner: Runner, runners: list[Runner], num: int, dim: int) -> dict[str, Any]:
    contestant = runner.contestant
    row: dict[str, Any] = {"loss": contestant.loss, "name": contestant.name, "n": num, "d": dim}
    timed = not runner.problem
    summary = asdict(summarise(runner, runners)) if timed else dict.fromkeys(f.name for f in fields(Summary))
    return row | {
        **summary,
        "warmups": runner.warmups,
        "peak_bytes": runner.peak_bytes,
        "status": "timed" if timed else runner.problem,
        "note": contestant.note,
    }


def _result(plan: Plan, checks: list[Check], rows: list[dict[str, Any]], absent: list[str]) -> dict[str, Any]:
    return {
        "bench": "loss",
        **record.circumstances(plan.device),
        "dtype": plan.dtype,
        "num_classes": plan.num_classes,
        "temperature": TEMPERATURE,
        "k1": K1,
        "k2": K2,
        "seconds": plan.seconds,
        "recorded": plan.recorded,
        "check_size": CHECK_SIZE,
        "sources": {c.name: c.source for c in plan.contestants},
        "not_installed": absent,
        "checks": [asdict(item) for item in checks],
        "rows": rows,
    }
