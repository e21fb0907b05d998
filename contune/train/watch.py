"""What a person sees of the steps: means, written to the log and the bar once in a while."""

import time
from collections.abc import Mapping

from torch import Tensor

from contune.progress import Advance
from contune.train.log import MetricsLog
from contune.train.meter import Meter


class Watch:
    """Collects what steps return; `read` is where the host waits for the device."""

    def __init__(self, log: MetricsLog, advance: Advance, meter: Meter | None = None) -> None:
        self.log, self.advance = log, advance
        self.meter = meter or Meter()
        self.read_at, self.num_timed = time.monotonic(), 0

    def add(self, metrics: Mapping[str, Tensor]) -> None:
        self.meter.add(metrics)
        self.num_timed += 1

    @property
    def seconds(self) -> float:
        """Since the means were last read."""
        return time.monotonic() - self.read_at

    def read(self, of_this_moment: Mapping[str, Tensor] | None = None) -> tuple[dict[str, float], float, int]:
        """The means since the last call, the seconds since then, and the number of steps in them."""
        values, now = self.meter.read(of_this_moment), time.monotonic()
        seconds, num_steps = now - self.read_at, self.num_timed
        self.read_at, self.num_timed = now, 0
        return values, seconds, num_steps

    def show(self, step: int, values: Mapping[str, float], text: str) -> None:
        self.log.write(step, dict(values))
        self.advance(step, text)
