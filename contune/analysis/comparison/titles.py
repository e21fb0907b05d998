"""What rows of runs are called: by the fewest settings that tell them apart."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

MOST_SETTINGS = 3
_FIRST = ("method", "model", "optim", "augment", "data", "eval", "run")
"""Sections, by how much a person expects of them; the earlier one is named where two would do."""


def titles(beginnings: Sequence[str], different: Mapping[str, Sequence[Any]]) -> list[str]:
    """A row's is its beginning and what settings have to add. `different` has by key the value in each row, None
    where there is none. Rows that settings cannot tell apart keep the same title."""
    parts = _parts(different)
    told = [parts[key] for key in _fewest(beginnings, parts)]
    if len(told) > MOST_SETTINGS:  # one thing changed at a time: what most have goes without saying
        told = [_unusual(beginnings, column) for column in told]
    return [
        ", ".join(part for part in (beginning, *(column[row] for column in told)) if part)
        for row, beginning in enumerate(beginnings)
    ]


def _parts(different: Mapping[str, Sequence[Any]]) -> dict[str, list[str]]:
    """By key, what a title would say of it in each row; nothing where it is not set."""
    keys = sorted(different, key=lambda key: _FIRST.index(key.partition(".")[0]))
    words = {key: key.removesuffix(".name").rpartition(".")[2] for key in keys}
    alike = Counter(words.values())
    return {
        key: [_part(words[key] if alike[words[key]] == 1 else key, value) for value in different[key]] for key in keys
    }


def _part(word: str, value: Any) -> str:
    if value is None or value == [] or value == ():
        return ""
    if isinstance(value, list | tuple):
        return f"{word} {' + '.join(map(str, value))}"
    if isinstance(value, bool):
        return f"{word} {str(value).lower()}"
    return f"{word} {value:g}" if isinstance(value, float) else f"{word} {value}"


def _fewest(beginnings: Sequence[str], parts: Mapping[str, Sequence[str]]) -> list[str]:
    """The smallest set of keys that tells as many rows apart as all of them do; of several, the first."""

    def num_told(keys: Sequence[str]) -> int:
        return len(set(zip(beginnings, *(parts[key] for key in keys), strict=True)))

    # Keys that split the rows in the same way can stand for each other.
    splits: dict[tuple[int, ...], str] = {}
    for key, column in parts.items():
        splits.setdefault(tuple(column.index(part) for part in column), key)
    keys = list(splits.values())
    most = num_told(keys)
    needed = [key for key in keys if num_told([other for other in keys if other != key]) < most]
    optional = [key for key in keys if key not in needed]
    tried = (set(needed) | set(more) for num in range(len(optional) + 1) for more in combinations(optional, num))
    fewest = next(chosen for chosen in tried if num_told(list(chosen)) == most)
    return [key for key in keys if key in fewest]


def _unusual(beginnings: Sequence[str], column: Sequence[str]) -> list[str]:
    """Without what most rows of the same beginning have."""
    usual = {
        beginning: Counter(part for each, part in zip(beginnings, column, strict=True) if each == beginning)
        for beginning in beginnings
    }
    return [
        "" if part == usual[beginning].most_common(1)[0][0] else part
        for beginning, part in zip(beginnings, column, strict=True)
    ]
