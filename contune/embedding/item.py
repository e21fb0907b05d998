"""An image on its way to a decoder."""

import os
from typing import NamedTuple


class Item(NamedTuple):
    name: str
    content: str | bytes
    """A path, or the bytes of the file."""
    label: str | None


def as_text(path: str) -> str:
    """Bytes of a name that are no text are written out as \\xff, for tables hold nothing but text."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")
