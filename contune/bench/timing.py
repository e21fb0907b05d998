"""Round-robin timing: every round runs each contestant once on the same tensors, so that all meet the same machine."""

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import median, quantiles

import torch

from contune.bench.batch import Batch
from contune.bench.contestants import BASELINE, Contestant
from contune.bench.failure import Failure, attempt, release_memory
from contune.bench.step import RecordedPass, forward_backward

GPU_WARMUPS, CPU_WARMUPS, SLOW_WARMUPS = 20, 3, 2
_SLOW_MS = 200.0
_MIN_ROUNDS, _MAX_ROUNDS = 5, 200
_CROWDED_SHARE = 0.1


@dataclass(kw_only=True)
class Runner:
    """A contestant on a batch, and what has been measured of it so far."""

    contestant: Contestant
    recorded: bool = False
    """Whether its pass is recorded and replayed, on a GPU."""
    replay: RecordedPass | None = None
    warmups: int = 0
    value: float | None = None
    ms: dict[int, float] = field(default_factory=dict)
    """By round."""
    peak_bytes: int | None = None
    problem: str = ""
    """Why it is out of the race; empty while it is in."""


@dataclass(frozen=True, kw_only=True)
class Summary:
    ms: float
    ms_q1: float
    ms_q3: float
    ratio: float | None
    """Median over the rounds of its time over that of contune in the same round."""
    rounds: int


def warm_up(runner: Runner, batch: Batch) -> str | None:
    """The first call may compile; the second says whether there is time for many more. Returns what went wrong."""
    device = batch.z_ND.device

    def calls() -> None:
        runner.value = float(_fresh_call(runner, batch)[1])
        ms, _ = _fresh_call(runner, batch)
        usual = GPU_WARMUPS if device.type == "cuda" else CPU_WARMUPS
        runner.warmups = SLOW_WARMUPS if ms > _SLOW_MS else usual
        if runner.recorded:
            runner.replay = RecordedPass(runner.contestant, batch)
            runner.value = float(_fresh_call(runner, batch)[1])
        for _ in range(runner.warmups - 2):
            _fresh_call(runner, batch)

    outcome = attempt(calls, device)
    return outcome.reason if isinstance(outcome, Failure) else None


def race(runners: list[Runner], batch: Batch, *, seconds: float, on_round: Callable[[int], None]) -> None:
    """Rounds in which everyone runs once, in an order that changes, since nobody is to run always after the same.

    Who has used up `seconds` leaves, after a few rounds at the least, so that slow ones do not cut fast ones short.
    Where the matrices take a good part of a GPU's memory, what one contestant leaves in the allocator's cache is
    released before the next; each then runs once untimed, so that nobody's time contains the allocations.
    """
    crowded = is_crowded(batch)
    shuffled = random.Random(0)
    for index in range(_MAX_ROUNDS):
        going = [runner for runner in runners if not runner.problem and _has_time(runner, seconds)]
        if not going:
            break
        shuffled.shuffle(going)
        for runner in going:
            _one_lap(runner, batch, index, crowded)
        on_round(index + 1)


def _has_time(runner: Runner, seconds: float) -> bool:
    return len(runner.ms) < _MIN_ROUNDS or sum(runner.ms.values()) < 1000 * seconds


def summarise(runner: Runner, runners: list[Runner]) -> Summary:
    baseline = next((r for r in runners if r.contestant.name == BASELINE and not r.problem), None)
    return summary_of(runner.ms, baseline.ms if baseline is not None else None)


def summary_of(ms: Mapping[int, float], baseline_ms: Mapping[int, float] | None) -> Summary:
    """From times by round. The ratio is over the rounds in which both ran, None where there are none."""
    times = list(ms.values())
    q1, _, q3 = quantiles(times, n=4, method="inclusive") if len(times) > 1 else times * 3
    ratios = [ms[index] / baseline_ms[index] for index in ms if index in baseline_ms] if baseline_ms else []
    return Summary(ms=median(times), ms_q1=q1, ms_q3=q3, ratio=median(ratios) if ratios else None, rounds=len(times))


def _one_lap(runner: Runner, batch: Batch, index: int, crowded: bool) -> None:
    def lap() -> float:
        if crowded:
            _fresh_call(runner, batch)
        return _fresh_call(runner, batch)[0]

    outcome = attempt(lap, batch.z_ND.device)
    if isinstance(outcome, Failure):
        runner.problem = outcome.reason
    else:
        runner.ms[index] = outcome
    if crowded:
        release_memory(batch.z_ND.device)


def _fresh_call(runner: Runner, batch: Batch) -> tuple[float, torch.Tensor]:
    """Milliseconds and the loss. The old gradient is dropped before the clock starts, for everyone alike."""
    batch.z_ND.grad = None
    if batch.z_ND.device.type == "cuda":
        return _gpu_call(runner, batch)
    start = time.perf_counter()
    loss = _call(runner, batch)
    return 1000 * (time.perf_counter() - start), loss


def _gpu_call(runner: Runner, batch: Batch) -> tuple[float, torch.Tensor]:
    """Between two events with an idle device before them: launches that the device waits for count."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize(batch.z_ND.device)
    start.record()
    loss = _call(runner, batch)
    end.record()
    torch.cuda.synchronize(batch.z_ND.device)
    return start.elapsed_time(end), loss


def _call(runner: Runner, batch: Batch) -> torch.Tensor:
    return forward_backward(runner.contestant, batch) if runner.replay is None else runner.replay()


def is_crowded(batch: Batch) -> bool:
    """Whether dense matrices of this size take a good part of the GPU's memory."""
    device = batch.z_ND.device
    if device.type != "cuda":
        return False
    return 9 * 4 * batch.z_ND.shape[0] ** 2 > _CROWDED_SHARE * torch.cuda.mem_get_info(device)[1]
