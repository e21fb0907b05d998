"""skipped.json: the images that a run was trained without, and why."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from contune.data.broken import Broken, BrokenImageError
from contune.data.broken_list import write_list
from contune.errors import UserError

SKIPPED_FILE = "skipped.json"


def write_skipped(folder: Path, skipped: Sequence[Broken]) -> None:
    """Nothing where nothing was skipped."""
    if skipped:
        write_list(folder / SKIPPED_FILE, skipped)


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
