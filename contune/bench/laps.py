"""Stages timed side by side: laps of equal length in an order that changes, so that all meet the same machine."""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

WARMUP_STEPS = 6
"""More than a recorded step takes before it is recorded."""
LAPS = 9


@dataclass(frozen=True, kw_only=True)
class Stage:
    name: str
    role: str
    """`bound`, `whole`, `peer` or `part`."""
    step: Callable[[], object]
    """Does the work of one training step and does not wait for it."""
    pause: Callable[[], None] = lambda: None
    """Ends what goes on in other processes, until the next step."""
    ahead: int = 0
    """Steps that it takes after a pause before the others are as long as they are on average."""


@dataclass(frozen=True)
class Timed:
    """All by the names of stages."""

    laps: list[dict[str, float]]
    """Seconds of a step, on average over the lap."""
    first_seconds: dict[str, float]
    """Of the first steps, which compile and record."""
    steps: dict[str, int]
    """In all laps together."""


def run_laps(field: Sequence[Stage], device: torch.device, seconds: float) -> Timed:
    """`seconds`: for each stage, give or take, after its first steps."""
    first_seconds = {stage.name: _timed(stage, WARMUP_STEPS, device) for stage in field}
    steps = {stage.name: max(2, round(seconds / LAPS / (_timed(stage, 3, device) / 3))) for stage in field}
    laps: list[dict[str, float]] = []
    shuffled = random.Random(0)
    for _ in range(LAPS):
        order = list(field)
        shuffled.shuffle(order)
        laps.append({stage.name: _timed(stage, steps[stage.name], device) / steps[stage.name] for stage in order})
    return Timed(laps, first_seconds, {name: number * LAPS for name, number in steps.items()})


def _timed(stage: Stage, num_steps: int, device: torch.device) -> float:
    """Seconds of `num_steps` steps, started with an idle device and waited for."""
    for _ in range(stage.ahead):
        stage.step()
    _wait(device)
    start = time.perf_counter()
    for _ in range(num_steps):
        stage.step()
    _wait(device)
    seconds = time.perf_counter() - start
    stage.pause()
    return seconds


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
