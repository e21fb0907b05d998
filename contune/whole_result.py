"""What a result.json has to hold for all that reads it: reports, comparisons, model cards, experiments."""

from types import NoneType
from typing import Any

Wanted = type | tuple[type, ...] | dict[str, Any] | list[Any]
"""A type, or several; sections with what is wanted of each; a list of what is wanted of every entry."""

_NUMBER = (int, float)
_MEASURE: Wanted = {
    "name": str,
    "top1": _NUMBER,
    "top5": (int, float, NoneType),
    "per_class": dict,
    "protocol": str,
    "split": str,
    "num_images": int,
}
_CONFIG: Wanted = {"augment": dict, "method": dict, "optim": dict}
RESULT: Wanted = {
    "method": str,
    "data": str,
    "encoder": str,
    "split": str,
    "epochs": int,
    "seed": int,
    "seconds": _NUMBER,
    "views_per_second": _NUMBER,
    "measures": [_MEASURE],
    "config": _CONFIG,
    "hardware": str,
    "versions": dict,
    "git_revision": (str, NoneType),
    "finished": str,
}
MAY_HAVE: dict[str, Wanted] = {
    "linear_top1": _NUMBER,
    "knn_top1": _NUMBER,
    "classifier_top1": _NUMBER,
    "stages": dict,
    "resumed_at": int,
    "last_logged": dict,
    "curves": dict,
}
"""Not in every result, but of these types where they are."""
GIVEN_UP: Wanted = {"stopped_at": int, "measures": [_MEASURE], "config": _CONFIG}
"""Of a trial that `contune tune` did not bring to its end."""


def gaps(values: dict[str, Any]) -> list[str]:
    """What a result is without, as dotted names: not there at all, or not of its type."""
    found = _gaps(values, GIVEN_UP if "stopped_at" in values else RESULT, "")
    return found + _gaps(values, {key: wanted for key, wanted in MAY_HAVE.items() if key in values}, "")


def _gaps(value: Any, wanted: Wanted, at: str) -> list[str]:
    if isinstance(wanted, dict) and isinstance(value, dict):
        return [
            gap
            for key, inner in wanted.items()
            for gap in (_gaps(value[key], inner, _joined(at, key)) if key in value else [_joined(at, key)])
        ]
    if isinstance(wanted, list) and isinstance(value, list):
        return [gap for number, entry in enumerate(value) for gap in _gaps(entry, wanted[0], f"{at}[{number}]")]
    fits = isinstance(wanted, type | tuple) and isinstance(value, wanted)
    return [] if fits else [at]


def _joined(at: str, key: str) -> str:
    return f"{at}.{key}" if at else key
