"""`contune doctor`: what to know about a run before it starts, from the machine to the positives of an anchor."""

from collections.abc import Iterator

from contune.config import Config
from contune.console import Finding, wrong
from contune.doctor.batch import about_batch
from contune.doctor.data import about_data
from contune.doctor.k1 import about_k1
from contune.doctor.machine import about_machine
from contune.doctor.network import about_network
from contune.doctor.positives import about_positives
from contune.errors import UserError
from contune.train.setup import build_method, open_setup, view_policies
from contune.train.skipped import way_around


def examine(config: Config) -> Iterator[Finding]:
    """Findings in the order of a run. What stops it ends the examination."""
    try:
        with way_around():
            yield from _examined(config)
    except UserError as error:
        yield wrong(str(error))


def _examined(config: Config) -> Iterator[Finding]:
    yield from about_machine(config.run.device)
    setup = open_setup(config)
    yield from about_data(setup)
    yield from about_batch(setup)
    yield from about_positives(config, setup.dataset.train.labels)
    yield from about_k1(setup)
    setup.augmenter(view_policies(config.augment))
    yield from about_network(setup, build_method(setup))
