"""Where the time of a run goes."""

import time


class Stopwatch:
    """Seconds by stage, in the order in which they came."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._since = time.monotonic()

    def lap(self, stage: str) -> None:
        """What passed since the last call was `stage`."""
        now = time.monotonic()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self._since
        self._since = now


def in_words(seconds: dict[str, float], resumed_at: int | None = None) -> str:
    """`61 s: data 2 s, training 40 s, measuring 15 s, report 4 s`, of a whole run or since the step it went on from."""
    stages = ", ".join(f"{stage} {value:.0f} s" for stage, value in seconds.items())
    since = "" if resumed_at is None else f" since it went on from step {resumed_at:,}"
    return f"{sum(seconds.values()):.0f} s{since}: {stages}"
