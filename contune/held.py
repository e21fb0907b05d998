"""A folder for one process at a time."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from contune.errors import UserError


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """However the process ends, the folder is free again. On a disk that has no locks it always is."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            _lock(descriptor, folder)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, folder: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UserError(
            f"another process writes to {folder}; wait for its end, or give another folder with --out"
        ) from None
