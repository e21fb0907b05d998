"""SIGTERM, by which a cluster takes a machine back: a run finishes its step, saves, and ends with a code that says so.

Where there is nothing to save (before the first step, while measuring) it ends at once.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

RESUME_CODE = 75
"""The exit code of a run that the same command goes on with: EX_TEMPFAIL of sysexits.h."""


class Stopped(BaseException):
    """SIGTERM came. No error, as KeyboardInterrupt is none, so that no `except Exception` takes it for one."""


# Of the process, as its signals are.
_asked = False
_put_off = False


@contextmanager
def stoppable() -> Iterator[None]:
    """In this block SIGTERM raises Stopped. A handler that somebody else has set stays, and threads have none."""
    global _asked
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return
    _asked = False
    signal.signal(signal.SIGTERM, _receive)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        _asked = False


@contextmanager
def put_off() -> Iterator[Callable[[], bool]]:
    """In this block SIGTERM is only noted, and Stopped is raised at its end; what is yielded tells whether it came.

    What fails after SIGTERM failed because of it: a worker or another process of the run that ended first.
    """
    global _put_off
    _put_off = True
    try:
        yield lambda: _asked
    except RuntimeError:
        if not _asked:
            raise
    finally:
        _put_off = False
    if _asked:
        raise Stopped


def _receive(number: int, frame: FrameType | None) -> None:
    global _asked
    _asked = True
    if not _put_off:
        raise Stopped
