"""The machine. It comes before anything can go wrong: it is what a report of a bug begins with."""

import shutil
from collections.abc import Iterator

from contune.console import Finding, advice, fine
from contune.device import choose_device, hardware_name
from contune.errors import UserError
from contune.train.result import versions


def about_machine(device_name: str) -> Iterator[Finding]:
    try:
        device = choose_device(device_name)
    except UserError:  # said when the run would want it
        device = choose_device("auto")
    found = ", ".join(f"{name} {version}" for name, version in versions().items())
    yield fine(f"machine: {hardware_name(device)}; {found}")
    free_gib = shutil.disk_usage(".").free / 2**30
    if free_gib < 2:
        yield advice(f"only {free_gib:.1f} GiB of disk are free here; checkpoints may not fit")
