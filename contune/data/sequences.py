"""Sequences that look their items up when asked, so that a million names or pictures cost nothing to list."""

from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar, overload

import numpy as np

T = TypeVar("T")


class Picked(Sequence[T], Generic[T]):
    """The items of `items` at `positions`; picking from a picked sequence does not nest."""

    def __init__(self, items: Sequence[T], positions: np.ndarray) -> None:
        self._items: Sequence[T] = items._items if isinstance(items, Picked) else items
        self._positions: np.ndarray = items._positions[positions] if isinstance(items, Picked) else positions

    def __len__(self) -> int:
        return len(self._positions)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> "Picked[T]": ...
    def __getitem__(self, index: int | slice) -> "T | Picked[T]":
        if isinstance(index, slice):
            return Picked(self._items, self._positions[index])
        return self._items[int(self._positions[index])]


class NumberedNames(Sequence[str]):
    """'part#0', 'part#1', …: one run of numbers for each (part, how many)."""

    def __init__(self, parts: Iterable[tuple[str, int]]) -> None:
        self._parts = tuple(parts)
        self._ends = np.cumsum([count for _, count in self._parts], dtype=np.int64)

    def __len__(self) -> int:
        return int(self._ends[-1]) if self._parts else 0

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Picked[str]: ...
    def __getitem__(self, index: int | slice) -> str | Picked[str]:
        if isinstance(index, slice):
            return Picked(self, np.arange(len(self))[index])
        position = range(len(self))[index]
        part = int(np.searchsorted(self._ends, position, side="right"))
        name, count = self._parts[part]
        return f"{name}#{position - (int(self._ends[part]) - count)}"
