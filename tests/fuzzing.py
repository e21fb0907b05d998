"""What tests on noise share: many cases by hypothesis, a limit to the time of each, and ways to damage a file."""

import random
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

QUICK, SLOW = 25, 600
cases = pytest.mark.parametrize("num_cases", [QUICK, pytest.param(SLOW, marks=pytest.mark.slow)])
seeds = st.integers(0, 2**32)


@contextmanager
def at_most(seconds: int) -> Iterator[None]:
    def ring(number: int, frame: FrameType | None) -> None:
        raise AssertionError(f"still not done after {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def for_all(num_cases: int, strategy: st.SearchStrategy[Any], check: Callable[[Any], None]) -> None:
    def checked(case: Any) -> None:
        with at_most(60):
            check(case)

    quiet = (HealthCheck.too_slow, HealthCheck.data_too_large)
    settings(max_examples=num_cases, suppress_health_check=quiet)(given(strategy)(checked))()


def damaged(content: bytes, chance: random.Random) -> bytes:
    """Bits flipped, a piece cut out, put in, zeroed or repeated; anything but the content itself."""
    start = chance.randrange(len(content))
    stop = min(len(content), start + chance.choice([1, 4, 64, len(content)]))
    piece = content[start:stop]
    ways = [
        bytes(byte ^ (1 << chance.randrange(8)) for byte in piece),
        b"",
        piece + chance.randbytes(len(piece) % 100 + 1),
        bytes(len(piece)),
        piece + piece,
    ]
    changed = content[:start] + chance.choice(ways) + content[stop:]
    return changed if changed != content else content[:-1]
