"""Errors in the input: one sentence that says what is wrong, then how to fix it."""

from collections.abc import Collection, Iterable
from difflib import get_close_matches


class UserError(ValueError):
    """Bad input. The command line prints the message without a traceback and exits with code 2."""


MOST_NAMES = 24


def check_known(kind: str, name: object, choices: Collection[str]) -> None:
    """Raise the error `unknown` if `name` is not one of `choices`."""
    if name not in choices:
        raise unknown(kind, name, choices)


def unknown(kind: str, name: object, choices: Iterable[str]) -> UserError:
    """The error for a name that is not one of `choices`. It suggests the closest, else lists up to 24."""
    choices = sorted(choices)
    closest = get_close_matches(str(name), choices, n=2, cutoff=0.5)
    if closest:
        return UserError(f"unknown {kind} {name!r}; did you mean {' or '.join(closest)}?")
    more = f" and {len(choices) - MOST_NAMES:,} more" if len(choices) > MOST_NAMES else ""
    return UserError(f"unknown {kind} {name!r}; choose from {', '.join(choices[:MOST_NAMES])}{more}")
