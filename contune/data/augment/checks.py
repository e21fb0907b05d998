"""Checks of a policy's options; each raises one sentence with the value, the rule and the way out."""

from contune.errors import UserError


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def check_probability(name: str, value: float) -> None:
    if not _is_number(value) or not 0.0 <= value <= 1.0:
        raise UserError(f"{name}={value!r} is not a probability; give a number from 0 (never) to 1 (always)")


def check_integer(name: str, value: int, low: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < low:
        raise UserError(f"{name}={value!r} is out of range; give a whole number of at least {low}")


def check_number(name: str, value: float, low: float, high: float) -> None:
    if not _is_number(value) or not low <= value <= high:
        raise UserError(f"{name}={value!r} is out of range; give a number from {low:g} to {high:g}")


def check_range(name: str, value: tuple[float, float], low: float, high: float) -> None:
    """`value` is (smallest, largest), above `low`, which is never reached, and up to `high`."""
    good = isinstance(value, tuple) and len(value) == 2 and all(_is_number(bound) for bound in value)
    if not good or not low < value[0] <= value[1] <= high:
        raise UserError(
            f"{name}={value!r} is not a range; give two numbers, the smaller first, above {low:g} and at most {high:g}"
        )


def check_image(image_size: int, channels: int, smallest: int = 1) -> None:
    check_integer("image_size", image_size, smallest)
    if channels not in (1, 3):
        raise UserError(f"channels={channels!r} is not supported; give 1 (grey) or 3 (colour)")
