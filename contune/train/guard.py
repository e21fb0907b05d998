"""What becomes of a run whose loss or gradient is no finite number: it stops, or leaves such steps out, and says so."""

import json
from collections.abc import Callable
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from contune import distributed
from contune.console import say
from contune.errors import UserError
from contune.files import write_whole
from contune.train.sent import Sent

POLICIES = ("stop", "skip")
INCIDENTS = "nonfinite.json"
MOST_DESCRIBED = 20
MOST_IN_A_ROW = 30
"""Steps skipped one after another, beyond which the weights themselves are to blame."""

Describe = Callable[[int], dict[str, Any]]
"""From the number of a step, counted from 1, to what was in its batch."""


class Step(NamedTuple):
    number: int
    loss: float
    gradient: float

    @property
    def is_finite(self) -> bool:
        return isfinite(self.loss) and isfinite(self.gradient)

    def __str__(self) -> str:
        if not isfinite(self.loss):
            return f"the loss became {self.loss} at step {self.number}"
        return f"the gradient became {self.gradient} at step {self.number}"


class Noted(NamedTuple):
    """Of several steps, to be waited for."""

    numbers: list[int]
    losses_and_gradients: Sent

    def wait(self) -> list[Step]:
        pairs = self.losses_and_gradients.wait()
        return [Step(number, *pair) for number, pair in zip(self.numbers, pairs, strict=True)]


class Guard:
    """Keeps each step's loss and largest gradient on the device until somebody may wait for it."""

    def __init__(self, policy: str, folder: Path, describe: Describe, advice: str) -> None:
        self.policy, self.file, self.describe, self.advice = policy, folder / INCIDENTS, describe, advice
        self.pending: list[tuple[int, Tensor]] = []
        self.num_skipped = self.in_a_row = 0

    def note(self, step: int, loss_and_gradient: Tensor) -> None:
        self.pending.append((step, loss_and_gradient.clone()))  # a replayed graph writes over its own

    def take(self) -> Noted:
        """What was noted since the last call."""
        pairs = [pair for _, pair in self.pending]
        noted = Noted([number for number, _ in self.pending], Sent(torch.stack(pairs) if pairs else torch.empty(0)))
        self.pending = []
        return noted

    def judge(self, noted: Noted) -> None:
        """Waits for these steps. One that was not finite ends the run, or is said to be left out."""
        steps = noted.wait()
        for step in steps:
            self.in_a_row = 0 if step.is_finite else self.in_a_row + 1
        bad = [step for step in steps if not step.is_finite]
        if not bad:
            return
        if self.policy == "stop":
            self._write(bad[:1])
            raise UserError(
                f"{bad[0]}; the last checkpoint is untouched; {self.file.name} there says what was in the batch; "
                f"{self.advice}, or leave such steps out with run.on_nan=skip"
            )
        self._skip(bad)

    def _skip(self, bad: list[Step]) -> None:
        if distributed.is_main() and self.num_skipped < MOST_DESCRIBED:
            self._write(bad[: MOST_DESCRIBED - self.num_skipped])
        self.num_skipped += len(bad)
        say(f"{bad[0]}: left out, as run.on_nan=skip asks; {self.num_skipped} so far, described in {self.file}")
        if self.in_a_row >= MOST_IN_A_ROW:
            raise UserError(
                f"{self.in_a_row} steps in a row had a loss or gradient that is not finite, up to step "
                f"{bad[-1].number}; the last checkpoint is untouched; {self.advice}"
            )

    def _write(self, steps: list[Step]) -> None:
        if not distributed.is_main():
            return
        try:
            known = json.loads(self.file.read_text(encoding="utf-8"))["steps"]
        except (OSError, ValueError, KeyError, TypeError):
            known = []
        numbers = {step.number for step in steps}
        known = [one for one in known if isinstance(one, dict) and one.get("step") not in numbers]
        found = [
            {"step": step.number, "loss": str(step.loss), "largest_gradient": str(step.gradient)}
            | self.describe(step.number)
            for step in steps
        ]
        write_whole(self.file, json.dumps({"steps": known + found}, indent=2) + "\n")
