"""A file that lists images which were left out, and why."""

import json
from collections.abc import Sequence
from pathlib import Path

from contune.data.broken import Broken
from contune.files import write_whole


def write_list(path: Path, broken: Sequence[Broken]) -> None:
    write_whole(path, json.dumps([one._asdict() for one in broken], indent=2) + "\n")


def is_list(path: Path) -> bool:
    """Whether `write_list` wrote it."""
    content = json.loads(path.read_text(encoding="utf-8"))
    return isinstance(content, list) and all(
        isinstance(one, dict) and set(one) == set(Broken._fields) for one in content
    )
