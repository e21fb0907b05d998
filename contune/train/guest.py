"""Manners for training inside another person's program: to say nothing unasked, and to leave their random numbers."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock

import torch

from contune.console import report_to, said_to

_ONE_AT_A_TIME = RLock()


@contextmanager
def silence() -> Iterator[None]:
    """No bars; what training has to remark becomes a warning at the end."""
    remarks: list[str] = []
    with report_to(lambda report: None), said_to(remarks.append):
        yield
    if remarks:
        warnings.warn("\n".join(remarks).strip(), stacklevel=4)


@contextmanager
def own_random_numbers() -> Iterator[None]:
    """Training seeds torch; the caller's random numbers go on as if it had not. Of several threads one at a time."""
    devices = range(torch.cuda.device_count()) if torch.cuda.is_available() else []
    with _ONE_AT_A_TIME, torch.random.fork_rng(devices=devices):
        yield
