"""What rows of runs are called: the method, and the settings in which they differ from what they are compared with."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from contune.console import plural

MOST_SETTINGS = 3
"""Named in every title; where more differ, what most rows have goes without saying, but not of a method's knobs: a row
without its k1 would be taken for one of the default."""
MOST_NAMED = 5
"""In one title, unless it takes more to tell rows apart."""
HELD_EQUAL = ("model.", "optim.epochs", "optim.batch_images", "augment.views", "data.")
"""Settings that a fair comparison of methods holds equal. Others (knobs, rate, policy) each method has of its own."""
_FIRST = ("method", "model", "optim", "augment", "data", "eval", "run")
"""Sections, by how much a person expects of them; of a method, least of its projector."""


def titles(beginnings: Sequence[str], data: Sequence[str], different: Mapping[str, Sequence[Any]]) -> list[str]:
    """A row's is its beginning, which has the method, and what settings have to add.

    `data` are those on which each row was measured: only rows of the same data are compared. `different` has by key
    the value in each row, None where there is none. Rows that settings cannot tell apart keep the same title.
    """
    parts = _parts(different)
    among = {key: data if key.startswith(HELD_EQUAL) else beginnings for key in parts}
    columns = {key: column for key, column in parts.items() if _differs(column, among[key])}
    if len(columns) > MOST_SETTINGS:
        knobs = [key for key in columns if key.startswith("method.")]
        told = knobs if len(knobs) <= MOST_SETTINGS else []
        columns = {key: column if key in told else _unusual(column, among[key]) for key, column in columns.items()}
    rows = [{key: column[row] for key, column in columns.items() if column[row]} for row in range(len(beginnings))]
    short = [", ".join([each, *_shortened(row)]) for each, row in zip(beginnings, rows, strict=True)]
    whole = [", ".join([each, *row.values()]) for each, row in zip(beginnings, rows, strict=True)]
    return [one if short.count(one) == 1 else other for one, other in zip(short, whole, strict=True)]


def words(keys: Sequence[str]) -> dict[str, str]:
    """By key, the word for it: the last part, or all of it where another ends so too."""
    short = {key: key.removesuffix(".name").rpartition(".")[2] for key in keys}
    alike = Counter(short.values())
    return {key: word if alike[word] == 1 else key for key, word in short.items()}


def _parts(different: Mapping[str, Sequence[Any]]) -> dict[str, list[str]]:
    """By key, what a title would say of it in each row; nothing where it is not set."""
    keys = sorted(different, key=lambda key: (_FIRST.index(key.partition(".")[0]), "projector" in key))
    return {key: [_part(word, value) for value in different[key]] for key, word in words(keys).items()}


def _part(word: str, value: Any) -> str:
    if value is None or value == [] or value == ():
        return ""
    if isinstance(value, list | tuple):
        return f"{word} {' + '.join(map(str, value))}"
    if isinstance(value, bool):
        return f"{word} {str(value).lower()}"
    return f"{word} {value:g}" if isinstance(value, float) else f"{word} {value}"


def _differs(column: Sequence[str], among: Sequence[str]) -> bool:
    """Whether it has two values among rows that belong together."""
    return len(set(zip(among, column, strict=True))) > len(set(among))


def _unusual(column: Sequence[str], among: Sequence[str]) -> list[str]:
    """Without what more than half of the rows that belong together have."""
    num = Counter(among)
    count = Counter(zip(among, column, strict=True))
    return ["" if 2 * count[group, part] > num[group] else part for group, part in zip(among, column, strict=True)]


def _shortened(parts: Mapping[str, str]) -> list[str]:
    """Those that a fair comparison holds equal before others, and how many more there are."""
    first = sorted(parts, key=lambda key: not key.startswith(HELD_EQUAL))[:MOST_NAMED]
    num_more = len(parts) - len(first)
    return [part for key, part in parts.items() if key in first] + (
        [plural(num_more, "more setting")] if num_more else []
    )
