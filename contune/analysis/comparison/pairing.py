"""What two rows have in common besides the seed, and in what else they differ than their titles say."""

from collections.abc import Sequence

from contune.analysis.comparison.runs import NOT_IN_TITLES, Group
from contune.analysis.comparison.titles import HELD_EQUAL, words

_COURSE = ("data.", "model.", "augment.", "optim.batch_images")
"""Settings that decide, together with the seed, on the encoder's first weights and on every batch of views."""
MOST_NAMED = 6


def shares_course(one: Group, other: Group) -> bool:
    """Whether runs of the same seed start from the same encoder weights and see the same batches."""
    return not _course(one, other)


def note(one: Group, other: Group) -> str:
    """What a reader of their difference has to know besides their titles; nothing where there is nothing."""
    course = _course(one, other)
    said = [f"only the seed is shared: {_listed(course)} differ{'s' if len(course) == 1 else ''}"] if course else []
    if one.runs[0].config["method"]["name"] != other.runs[0].config["method"]["name"]:
        # Rows of one method are named by all that differs; of two, by what both should have had.
        own = [key for key in _different(one, other) if key not in course and not key.startswith(HELD_EQUAL)]
        said += [f"each has its own {_listed(own)}"] if own else []
    return "; ".join(said)


def _course(one: Group, other: Group) -> list[str]:
    return [key for key in _different(one, other) if key.startswith(_COURSE)]


def _different(one: Group, other: Group) -> list[str]:
    """Settings that both have and that differ."""
    mine, theirs = one.runs[0].settings, other.runs[0].settings
    return [key for key in mine if key in theirs and mine[key] != theirs[key] and key not in NOT_IN_TITLES]


def _listed(keys: Sequence[str]) -> str:
    named = list(words(keys).values())
    if len(named) > MOST_NAMED:
        named = [*named[: MOST_NAMED - 1], f"{len(named) - MOST_NAMED + 1} more settings"]
    return " and ".join(filter(None, (", ".join(named[:-1]), named[-1])))
