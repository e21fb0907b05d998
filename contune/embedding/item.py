"""An image on its way to a decoder."""

from typing import NamedTuple


class Item(NamedTuple):
    name: str
    content: str | bytes
    """A path, or the bytes of the file."""
    label: str | None
