"""What a person looks at: the report of a run, the comparison of several, and the style of every plot."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from contune.config import Config
    from contune.run import RunFolder


def train_and_report(config: "Config", folder: "RunFolder", **options: Any) -> dict[str, Any]:
    """Train with a report at the end: what `contune train` and `contune experiment` run, also in other processes.

    `options` are those of `contune.training.session.train`.
    """
    from contune.report.page import write_report  # imported late: matplotlib and torch take seconds
    from contune.training.session import train

    return train(config, folder, write_report=write_report, **options)
