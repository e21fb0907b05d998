"""Which data sets of an experiment are on this disk."""

from collections.abc import Iterable

from contune.config import Config
from contune.console import progress
from contune.errors import UserError
from contune.train.setup import open_dataset


def absent_data(configs: Iterable[Config]) -> dict[str, str]:
    """By name, the data sets that cannot be opened, each with the sentence that says why."""
    by_name = {config.data.name: config.data for config in configs}
    absent = {}
    with progress("data", len(by_name), unit="data sets") as advance:
        for number, (name, data) in enumerate(by_name.items()):
            advance(number, name)
            try:
                open_dataset(data)
            except UserError as error:
                absent[name] = str(error)
    return absent
