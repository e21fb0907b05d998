"""Manners for training inside another person's program: to say nothing unasked, and to leave their random numbers."""

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout

import torch

from contune.progress import report_to


@contextmanager
def silence() -> Iterator[None]:
    """No bars; what training has to remark becomes a warning at the end."""
    remarks = io.StringIO()
    with report_to(lambda report: None), redirect_stdout(remarks):
        yield
    if remarks.getvalue():
        warnings.warn(remarks.getvalue().strip(), stacklevel=4)


@contextmanager
def own_random_numbers() -> Iterator[None]:
    """Training seeds torch; the caller's random numbers go on as if it had not."""
    devices = range(torch.cuda.device_count()) if torch.cuda.is_available() else []
    with torch.random.fork_rng(devices=devices):
        yield
