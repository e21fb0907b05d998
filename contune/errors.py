"""What a person did wrong, said in one sentence: the value, the rule and the way out."""

from collections.abc import Iterable
from difflib import get_close_matches


class UserError(ValueError):
    """Bad input. The command line prints its sentence and exits with code 2; no traceback."""


MOST_NAMES = 24


def unknown(kind: str, name: object, choices: Iterable[str]) -> UserError:
    """The error for a name that is not among `choices`: the nearest ones, else all, or the first of very many."""
    choices = sorted(choices)
    nearest = get_close_matches(str(name), choices, n=3, cutoff=0.5)
    if nearest:
        return UserError(f"unknown {kind} {name!r}; did you mean {' or '.join(nearest)}?")
    more = f" and {len(choices) - MOST_NAMES:,} more" if len(choices) > MOST_NAMES else ""
    return UserError(f"unknown {kind} {name!r}; choose from {', '.join(choices[:MOST_NAMES])}{more}")
