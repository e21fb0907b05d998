"""Images that cannot be used, and why."""

from collections.abc import Sequence
from typing import NamedTuple

from contune.errors import UserError


class BrokenImageError(UserError):
    """One that cannot be read or decoded: the whole sentence, and the reason alone for a list of many."""

    def __init__(self, sentence: str, reason: str) -> None:
        super().__init__(sentence, reason)
        self.reason = reason

    def __str__(self) -> str:
        return str(self.args[0])


class Broken(NamedTuple):
    """A line in such a list."""

    name: str
    reason: str


def none_decoded(broken: Sequence[Broken]) -> UserError:
    """The sentence where these are all there is."""
    return UserError(f"no image can be decoded; the first, {broken[0].name!r}, {broken[0].reason}")
