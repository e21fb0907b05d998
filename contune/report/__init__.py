"""What a person looks at: the report of a run, the comparison of several, and the style of every plot."""

from typing import Any

from contune.config import Config
from contune.report.page import write_report
from contune.run import RunFolder
from contune.training.session import train


def train_and_report(config: Config, folder: RunFolder, **options: Any) -> dict[str, Any]:
    """Train with a report at the end, also in other processes; `options` are those of `training.session.train`."""
    return train(config, folder, write_report=write_report, **options)
