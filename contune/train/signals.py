"""Being asked to stop, by SIGTERM, with which a cluster takes a machine back, or by Ctrl-C: a run finishes its step,
saves, and ends with a code that says so.

Where there is nothing to save (before training, while measuring) it ends at once, and so it does at a second Ctrl-C;
only a report's map that was begun while a GPU measures is waited for.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

RESUME_CODE = 75
"""The exit code of a run that the same command goes on with: EX_TEMPFAIL of sysexits.h."""


class Stopped(BaseException):
    """SIGTERM came. No error, as KeyboardInterrupt is none, so that no `except Exception` takes it for one."""


_RAISED: dict[int, type[BaseException]] = {signal.SIGTERM: Stopped, signal.SIGINT: KeyboardInterrupt}
_AS_PYTHON_BEGINS: dict[signal.Signals, Any] = {
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGINT: signal.default_int_handler,
}

# Of the process, as its signals are.
_asked: type[BaseException] | None = None
_put_off = False


@contextmanager
def stoppable() -> Iterator[None]:
    """In this block SIGTERM raises Stopped, and Ctrl-C can be put off. Others' handlers stay; threads have none."""
    global _asked
    in_main_thread = threading.current_thread() is threading.main_thread()
    own = [
        number for number, plain in _AS_PYTHON_BEGINS.items() if in_main_thread and signal.getsignal(number) == plain
    ]
    if own:
        _asked = None
    for number in own:
        signal.signal(number, _receive)
    try:
        yield
    finally:
        for number in own:
            signal.signal(number, _AS_PYTHON_BEGINS[number])
        if own:
            _asked = None


@contextmanager
def put_off() -> Iterator[Callable[[], bool]]:
    """In this block a signal is only noted, and raises at its end; what is yielded tells whether one came.

    What fails after a signal failed because of it: a worker or another process of the run that ended first.
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
    _asked = _RAISED[number]
    if again or not _put_off:
        raise _asked
