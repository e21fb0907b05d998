"""Dataclasses as settings: rules on their fields, values from text, plain dicts to save."""

import types
from collections.abc import Iterable, Sequence
from dataclasses import Field, field, fields
from math import isinf
from typing import Any, Union, get_args, get_origin, get_type_hints

from contune.errors import UserError, unknown

Value = bool | int | float | str | tuple["Value", ...] | None


def ranged(
    default: float | None, *, low: float | None = None, above: float | None = None, high: float | None = None
) -> Any:
    """A number field: at least `low`, strictly above `above`, at most `high`."""
    return field(default=default, metadata={"low": low, "above": above, "high": high})


def one_of(default: str, choices: Sequence[str]) -> Any:
    """A text field with a closed list of values."""
    return field(default=default, metadata={"choices": tuple(choices)})


def check(settings: Any, prefix: str) -> None:
    """Every field of a settings dataclass against its rule."""
    for item in fields(settings):
        value = getattr(settings, item.name)
        if value is not None:
            _check_field(item, value, f"{prefix}{item.name}")


def parse(text: str, annotation: Any, key: str) -> Value:
    """The value that `text` stands for under a type annotation; `none` where the annotation allows None."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        if type(None) in arguments and text.lower() in ("none", "null", ""):
            return None
        return parse(text, next(a for a in arguments if a is not type(None)), key)
    if origin is tuple:
        separator = ";" if ";" in text else ","  # the former where the parts have commas of their own
        return tuple(parse(part.strip(), arguments[0], key) for part in text.split(separator) if part.strip())
    if annotation is bool:
        return _parse_bool(text, key)
    if annotation in (int, float):
        return _parse_number(text, annotation, key)
    return text


def assign(settings: Any, name: str, text: str, key: str) -> None:
    """Sets one field of a settings dataclass from text."""
    annotations = annotations_of(settings)
    if name not in annotations:
        raise unknown("setting", key, [key.rpartition(".")[0] + "." + known for known in annotations])
    setattr(settings, name, parse(text, annotations[name], key))


def fill(settings: Any, values: dict[str, Any], prefix: str) -> None:
    """Sets fields from a saved dict, whose lists were tuples."""
    annotations = annotations_of(settings)
    for name, value in values.items():
        if name not in annotations:
            raise unknown("setting", prefix + name, [prefix + known for known in annotations])
        value = tuple(value) if isinstance(value, list) else value
        if not _fits(value, annotations[name]):
            raise UserError(f"{prefix}{name} cannot be {shortened(value)}; write a value as the command line takes it")
        setattr(settings, name, value)


def annotations_of(settings: Any) -> dict[str, Any]:
    cls = settings if isinstance(settings, type) else type(settings)
    hints = get_type_hints(cls)
    return {item.name: hints[item.name] for item in fields(cls)}


def split_assignment(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise UserError(f"{text!r} is not KEY=VALUE; write for example optim.epochs=100")
    return key.strip(), value.strip()


def split_assignments(texts: str | Iterable[str]) -> list[tuple[str, str]]:
    """A text by itself is one assignment, not as many as it has letters."""
    return [split_assignment(text) for text in ([texts] if isinstance(texts, str) else texts)]


def shortened(value: object, length: int = 80) -> str:
    """A value as a sentence can hold it."""
    text = repr(value)
    return text if len(text) <= length else text[: length - 1] + "…"


def _fits(value: object, annotation: Any) -> bool:
    """Whether a value from a file is of the type its field has; a whole number is a number too, a yes or no is none."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        return any(_fits(value, argument) for argument in arguments)
    if origin is tuple:
        return isinstance(value, tuple) and all(_fits(part, arguments[0]) for part in value)
    if annotation in (int, float):
        return isinstance(value, (int, float) if annotation is float else int) and not isinstance(value, bool)
    return isinstance(value, annotation)


def _check_field(item: "Field[Any]", value: Any, key: str) -> None:
    choices: Iterable[str] | None = item.metadata.get("choices")
    if choices is not None and value not in choices:
        raise unknown(key, value, choices)
    low, above, high = (item.metadata.get(bound) for bound in ("low", "above", "high"))
    if (low is not None and not value >= low) or (above is not None and not value > above):
        bound = f"{low:g} or more" if low is not None else f"above {above:g}"
        raise UserError(f"{key} must be {bound}, got {value}")
    if isinstance(value, float) and isinf(value):
        raise UserError(f"{key} must be finite, got {value}")
    if high is not None and not value <= high:
        bound = f"{high:,}" if isinstance(high, int) else f"{high:g}"
        raise UserError(f"{key} must be {bound} or less, got {value}")


def _parse_bool(text: str, key: str) -> bool:
    values = {
        "true": True,
        "1": True,
        "yes": True,
        "on": True,
        "false": False,
        "0": False,
        "no": False,
        "off": False,
    }
    if text.lower() not in values:
        raise UserError(f"{key} must be true or false, got {text!r}")
    return values[text.lower()]


def _parse_number(text: str, kind: type[int] | type[float], key: str) -> int | float:
    try:
        return kind(text)
    except ValueError:
        noun = "a whole number" if kind is int else "a number"
        raise UserError(f"{key} must be {noun}, got {text!r}") from None
