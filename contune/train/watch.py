"""What a person sees of the steps: means, written to the log and the bar once in a while."""

import time
from collections.abc import Mapping

from torch import Tensor

from contune.progress import Advance
from contune.train.log import MetricsLog
from contune.train.meter import Meter


class Watch:
    """Collects what steps return; `read` is where the host waits for the device."""

    def __init__(self, log: MetricsLog, advance: Advance) -> None:
        self.log, self.advance = log, advance
        self.meter = Meter()
        self.read_at = time.monotonic()

    def add(self, metrics: Mapping[str, Tensor]) -> None:
        self.meter.add(metrics)

    def read(self) -> tuple[dict[str, float], float, int]:
        """The means since the last call, the seconds since then, and the number of steps."""
        num_steps, means, now = self.meter.count, self.meter.read(), time.monotonic()
        seconds, self.read_at = now - self.read_at, now
        return means, seconds, num_steps

    def show(self, step: int, values: Mapping[str, float], text: str) -> None:
        self.log.write(step, dict(values))
        self.advance(step, text)
