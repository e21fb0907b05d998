"""Pillow without its warnings: odd metadata in a picture that decodes is no news, and there may be a million."""

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_num_inside = 0
_filters = warnings.catch_warnings()


@contextmanager
def quiet() -> Iterator[None]:
    """Filters belong to the whole process: the first thread that decodes sets them, the last one takes them back."""
    global _num_inside, _filters
    with _lock:
        _num_inside += 1
        if _num_inside == 1:
            _filters = warnings.catch_warnings()
            _filters.__enter__()
            warnings.filterwarnings("ignore", module=r"PIL\b")
    try:
        yield
    finally:
        with _lock:
            _num_inside -= 1
            if _num_inside == 0:
                _filters.__exit__(None, None, None)
