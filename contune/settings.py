"""Dataclasses as settings: rules for their fields, values from text or JSON, and a description of each."""

import inspect
import re
import types
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, field, fields
from math import isinf
from operator import ge, gt, le
from pathlib import PurePath
from typing import Any, Literal, Union, get_args, get_origin

from contune.errors import UserError, unknown

_KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text", type(None): "none"}
_BOUNDS = {"low": ("{:g} or more", ge), "above": ("above {:g}", gt), "high": ("{:g} or less", le)}
_BOOLS = dict.fromkeys(("true", "1", "yes", "on"), True) | dict.fromkeys(("false", "0", "no", "off"), False)


def ranged(
    default: float | str | None, *, low: float | None = None, above: float | None = None, high: float | None = None
) -> Any:
    """A number field: at least `low`, strictly above `above`, at most `high`."""
    return field(default=default, metadata={"low": low, "above": above, "high": high})


def one_of(default: str | int | None, choices: Sequence[str | int]) -> Any:
    """A field with a closed list of values."""
    return field(default=default, metadata={"choices": tuple(choices)})


def check(settings: Any, prefix: str) -> None:
    """Check every field of a settings dataclass against its rule. None is always allowed."""
    for item in fields(settings):
        value, key, rule = getattr(settings, item.name), f"{prefix}{item.name}", item.metadata
        if value is None:
            continue
        if "choices" in rule and value not in rule["choices"]:
            raise unknown(key, value, map(str, rule["choices"]))
        if isinstance(value, str):  # a word instead of a number
            continue
        if isinstance(value, float) and isinf(value):
            raise UserError(f"{key} must be finite, got {value}")
        for bound, (words, holds) in _BOUNDS.items():
            if rule.get(bound) is not None and not holds(value, rule[bound]):
                raise UserError(f"{key} must be {words.format(rule[bound])}, got {value}")


def parse(value: Any, annotation: Any, key: str) -> Any:
    """The value of a text, or of a number or list from JSON, under a type annotation.

    `none` is None where the annotation allows it. An int is a valid float; a bool is no number. NumPy's numbers and
    paths are those of Python.
    """
    value = value.item() if hasattr(value, "item") else str(value) if isinstance(value, PurePath) else value
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        if type(None) in arguments and (value is None or str(value).lower() in ("none", "null", "")):
            return None
        for choice in arguments:
            if get_origin(choice) is Literal and value in get_args(choice):
                return value
        return parse(value, arguments[0], key)
    if origin is tuple:
        if isinstance(value, str):
            separator = ";" if ";" in value else ","  # semicolons if the parts contain commas
            value = [part.strip() for part in value.split(separator) if part.strip()]
        if isinstance(value, list | tuple):
            return tuple(parse(part, arguments[0], key) for part in value)
    elif isinstance(value, str):
        if annotation is bool and value.lower() in _BOOLS:
            return _BOOLS[value.lower()]
        if annotation in (int, float):
            with suppress(ValueError):
                return annotation(value)
        if annotation is str or origin is Literal:
            return value
    elif type(value) is annotation or (annotation is float and type(value) is int):
        return value
    raise UserError(f"{key} must be {_KINDS.get(annotation, 'a list')}, got {str(value)[:80]!r}")


def annotations_of(settings: Any) -> dict[str, Any]:
    """The type of each field of a settings dataclass, given the class or an instance."""
    return {item.name: item.type for item in fields(settings)}


def split_assignment(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise UserError(f"{text!r} is not KEY=VALUE; write for example optim.epochs=100")
    return key.strip(), value.strip()


def describe(cls: type, section: str) -> Iterator[tuple[str, str, str, str]]:
    """Of every setting: its key, what values it takes, the default as you would type it, and its docstring."""
    texts: dict[str, str] = {}
    for base in reversed(cls.__mro__[:-1]):  # Python itself keeps only the docstring of the class
        texts |= re.findall(r'^ +(\w+): .+\n +"""((?s:.+?))"""', inspect.getsource(base), re.MULTILINE)
    for item in fields(cls):
        if item.default is not MISSING:  # otherwise it is a group of settings
            text = inspect.cleandoc(texts.get(item.name, ""))
            yield f"{section}.{item.name}", _kind(item.type, item.metadata), as_text(item.default), text


def as_text(value: object) -> str:
    """A value as you would type it after KEY=."""
    if isinstance(value, tuple | list):
        return "; ".join(map(as_text, value))
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)


def _kind(annotation: Any, rule: Mapping[str, Any]) -> str:
    """`a whole number, 1 or more`, `a number or auto, above 0, 1 or less`, `shuffle or balanced`"""
    if "choices" in rule:
        return " or ".join(map(str, rule["choices"]))
    origin = get_origin(annotation)
    parts = get_args(annotation) if origin in (Union, types.UnionType) else (annotation,)
    kinds = [*(get_args(part) if get_origin(part) is Literal else (_KINDS.get(part, "a list"),) for part in parts)]
    limits = [words.format(rule[bound]) for bound, (words, _) in _BOUNDS.items() if rule.get(bound) is not None]
    return ", ".join([" or ".join(word for words in kinds for word in words), *limits])
