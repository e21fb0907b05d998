"""skipped.json: the images that a run was trained without, and why."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from contune.data.broken import Broken, BrokenImageError
from contune.errors import UserError
from contune.files import write_whole

SKIPPED_FILE = "skipped.json"


def write_skipped(folder: Path, skipped: Sequence[Broken]) -> None:
    """Nothing where nothing was skipped."""
    if skipped:
        write_whole(folder / SKIPPED_FILE, json.dumps([broken._asdict() for broken in skipped], indent=2) + "\n")


@contextmanager
def way_around() -> Iterator[None]:
    """A broken image that stops a command is told together with the setting that would not let it."""
    try:
        yield
    except BrokenImageError as error:
        raise UserError(f"{error}; data.broken=skip leaves such files out") from error


def skipped_words(skipped: Sequence[Broken]) -> str:
    """For the line that says what is trained on."""
    if not skipped:
        return ""
    return f"; {broken_words(skipped)} left out ({SKIPPED_FILE})"


def broken_words(skipped: Sequence[Broken]) -> str:
    return f"{len(skipped):,} broken {'image is' if len(skipped) == 1 else 'images are'}"
