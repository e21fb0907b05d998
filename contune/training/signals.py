"""SIGTERM and Ctrl-C: a run finishes its step, saves a checkpoint, and ends with an exit code that says so.

Before training and during evaluation there is nothing to save, and a run ends at once. So it does at a second Ctrl-C.
This module imports nothing heavy: commands install the handlers before they load torch.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

RESUME_CODE = 75
"""The exit code of a run that the same command resumes: EX_TEMPFAIL of sysexits.h."""


class Stopped(BaseException):
    """SIGTERM came. Like KeyboardInterrupt it is no Exception, so that no `except Exception` catches it."""


_KINDS: dict[int, tuple[type[BaseException], Any]] = {
    signal.SIGTERM: (Stopped, signal.SIG_DFL),
    signal.SIGINT: (KeyboardInterrupt, signal.default_int_handler),
}
"""What each signal raises, and its usual handler."""

# Signals belong to the process, and so do these.
_asked: type[BaseException] | None = None
_put_off = False


@contextmanager
def stoppable() -> Iterator[None]:
    """In this block SIGTERM raises Stopped, and Ctrl-C can be put off. Handlers set by others stay."""
    global _asked
    in_main_thread = threading.current_thread() is threading.main_thread()
    own = [number for number, (_, usual) in _KINDS.items() if in_main_thread and signal.getsignal(number) == usual]
    for number in own:
        signal.signal(number, _receive)
    try:
        yield
    finally:
        for number in own:
            signal.signal(number, _KINDS[number][1])
            _asked = None


@contextmanager
def put_off() -> Iterator[Callable[[], bool]]:
    """In this block a signal is only noted, and raised at its end. Call what is yielded to ask whether one came.

    A RuntimeError after a signal is a consequence of it: a worker, or another process of the run, has ended first.
    """
    global _put_off
    _put_off = True
    try:
        yield lambda: _asked is not None
    except Stopped:
        raise (_asked or Stopped) from None
    except RuntimeError:
        if _asked is None:
            raise
    finally:
        _put_off = False
    if _asked is not None:
        raise _asked


def _receive(number: int, frame: FrameType | None) -> None:
    global _asked
    again = _asked is KeyboardInterrupt and number == signal.SIGINT
    _asked = _KINDS[number][0]
    if again or not _put_off:
        raise _asked
