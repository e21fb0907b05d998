"""What a person sees of the steps: means, written to the log and the bar once in a while.

The device never waits for it: what is asked for at a step is shown when it has come over, a few steps later.
"""

import time
from collections.abc import Mapping, Sequence
from math import inf, isfinite
from typing import NamedTuple, Protocol

from torch import Tensor

from contune.console import Advance, say
from contune.methods import Output
from contune.methods.base import Guess
from contune.train.collapse import collapse_sentence, guessing_sentence
from contune.train.finite import TAKEN
from contune.train.guard import Guard, Noted
from contune.train.log import MetricsLog
from contune.train.meter import Means, Meter


class Moment(NamedTuple):
    """Where training is."""

    step: int
    epoch: float
    lr: float


class Recorder(Protocol):
    """Measures the last step where it is asked to, outside the step."""

    def keep(self, output: Output) -> None:
        """Nothing is computed or copied: of a recorded step these are the tensors that each replay writes to."""

    def read(self) -> dict[str, Tensor]:
        """Scalars by name, over all processes or of this one; the host does not wait for them."""


class _Asked(NamedTuple):
    moment: Moment
    num_steps: int
    noted: Noted
    means: Means
    of_this_moment: frozenset[str]
    """Which of the means are values of a single step."""


class Watch:
    """Collects what steps return and shows it; a step that was not finite is found here too."""

    def __init__(
        self,
        log: MetricsLog,
        advance: Advance,
        *,
        meter: Meter,
        guard: Guard,
        recorders: Sequence[Recorder],
        guess: Guess | None,
        views_per_step: int,
        seconds: float = 0.0,
    ) -> None:
        self.log, self.advance, self.meter, self.guard, self.recorders = log, advance, meter, guard, recorders
        self.guess, self.views_per_step = guess, views_per_step
        self.shown_at = time.monotonic()
        self.started = self.shown_at - seconds
        self.num_steps = 0
        self.asked: _Asked | None = None
        self.said: set[str] = set()

    @property
    def seconds(self) -> float:
        """Of the whole training, those before this watch began included."""
        return time.monotonic() - self.started

    def add(self, metrics: Mapping[str, Tensor]) -> None:
        """Of one more step. What was asked for before and has come over is shown."""
        self.meter.add(metrics)
        self.num_steps += 1
        if self.asked is not None and self.asked.means.totals.is_there():
            self.catch_up()

    def ask(self, moment: Moment) -> None:
        """For the means since the last call; what was asked for then is shown now at the latest."""
        self.catch_up()
        now = {name: value for recorder in self.recorders for name, value in recorder.read().items()}
        noted, means = self.guard.take(), self.meter.take(now)
        self.asked = _Asked(moment, self.num_steps, noted, means, frozenset(now))
        self.num_steps = 0
        if means.totals.is_there():
            self.catch_up()

    def catch_up(self) -> None:
        """Waits for what was asked for and shows it."""
        asked, self.asked = self.asked, None
        if asked is None:
            return
        self.guard.judge(asked.noted)
        means, now = asked.means.wait(), time.monotonic()
        seconds, self.shown_at = now - self.shown_at, now
        if TAKEN in means:
            means = self._of_steps_taken(means, asked.of_this_moment)
            if "loss" not in means:
                return
        self._warn(means, asked.moment)
        step, epoch, lr = asked.moment
        rate = asked.num_steps * self.views_per_step / seconds
        self.log.write(step, {"epoch": epoch, "lr": lr, **means, "views_per_second": rate})
        self.advance(step, f"loss {means['loss']:.3f}  lr {lr:.2g}  {rate:,.0f} views/s")

    def _of_steps_taken(self, means: dict[str, float], of_this_moment: frozenset[str]) -> dict[str, float]:
        """Means over the steps that were not skipped, and how many were; without a loss where all of them were."""
        share = means.pop(TAKEN)
        taken = {name: mean if name in of_this_moment else mean / share for name, mean in means.items() if share}
        finite = {name: mean for name, mean in taken.items() if isfinite(mean)}
        return finite | {"skipped_steps": self.guard.num_skipped}

    def _warn(self, means: Mapping[str, float], moment: Moment) -> None:
        """Once of each thing that is wrong with what is learnt."""
        rank = means.get("effective_rank", inf)  # there is none after a step that was undone
        sentences = {
            "collapse": collapse_sentence(rank, moment.step),
            "guessing": guessing_sentence(self.guess, means["loss"], moment.step, moment.epoch),
        }
        for kind, sentence in sentences.items():
            if sentence is not None and kind not in self.said:
                self.said.add(kind)
                say(sentence)
