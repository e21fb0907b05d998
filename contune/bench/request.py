"""What every benchmark asks of its caller, and how it counts what is done."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import torch

from contune.console import Advance
from contune.device import choose_device
from contune.errors import UserError, unknown


class Named(Protocol):
    @property
    def name(self) -> str: ...


Contender = TypeVar("Contender", bound=Named)


def chosen(field: Sequence[Contender], only: Sequence[str]) -> list[Contender]:
    """By names; a beginning of names stands for all that begin so, unless it is a name itself. None, all."""
    names = {contender.name for contender in field}
    wanted: set[str] = set()
    for name in only:
        found = {name} & names or {other for other in names if other.startswith(name)}
        if not found:
            raise unknown("contestant", name, names)
        wanted |= found
    return [contender for contender in field if not only or contender.name in wanted]


def clocked_device(name: str) -> torch.device:
    """One on which time can be taken."""
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise UserError(f"there is no CUDA device here for device={name}; use device=cpu")
    device = choose_device(name)
    if device.type not in ("cpu", "cuda"):
        raise UserError(f"the benchmark has clocks for cpu and cuda only, got device={name}")
    return device


def counter(advance: Advance) -> Callable[[int, str], None]:
    """Takes how much more is done, and what is going on."""
    done = 0

    def count(more: int, text: str) -> None:
        nonlocal done
        done += more
        advance(done, text)

    return count
