"""What a person looks at: the report of a run, the comparison of several, and the style of every plot."""

from math import sqrt
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from contune.config import Config
    from contune.run import RunFolder


def train_and_report(config: "Config", folder: "RunFolder") -> dict[str, Any]:
    """Train with a report at the end: what `contune train` and `contune experiment` run, also in other processes."""
    from contune.report.page import write_report  # imported late: matplotlib and torch take seconds
    from contune.train.session import train

    return train(config, folder, write_report=write_report)


def wilson_interval(percent: float, num: int) -> tuple[float, float]:
    """The 95 % interval of a share of `num` images, in percent (Wilson 1927); valid at 0 and 100 too."""
    z, p = 1.96, percent / 100
    middle = (p + z**2 / (2 * num)) / (1 + z**2 / num)
    half = z * sqrt(p * (1 - p) / num + z**2 / (4 * num**2)) / (1 + z**2 / num)
    return 100 * max(0.0, middle - half), 100 * min(1.0, middle + half)
