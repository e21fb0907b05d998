"""Images that are named one by one."""

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from contune.data.broken import BrokenImageError
from contune.data.given import check_item, picture_bytes
from contune.embedding.item import Item, as_text
from contune.errors import UserError

Given = str | Path | Image.Image
"""The path of an image, or a picture."""


@dataclass(frozen=True)
class ListSource:
    """Nobody says what class they are of."""

    given: Sequence[Given]

    @classmethod
    def open(cls, given: Sequence[Given]) -> "ListSource":
        if not given:
            raise UserError("a list of no images is given; put paths or pictures (PIL) into it")
        for number, one in enumerate(given):
            check_item(one, number)
            if not isinstance(one, Image.Image) and not os.path.isfile(os.path.expanduser(one)):
                raise UserError(
                    f"item {number}, {str(one)!r}, is no file; a list holds paths of images, not of folders"
                )
        return cls(given)

    @property
    def num(self) -> int:
        return len(self.given)

    def images(self, start: int) -> Iterator[Item]:
        for number, one in enumerate(self.given[start:], start):
            if isinstance(one, Image.Image):
                name = f"images#{number}"
                yield Item(name, _content(one, name), None)
            else:
                path = os.path.expanduser(str(one))
                yield Item(as_text(path), path, None)

    def identity(self) -> str:
        digest = hashlib.sha256()
        for item in self.images(0):
            digest.update(os.fsencode(item.content) + b"\0")
        return digest.hexdigest()


def _content(picture: Image.Image, name: str) -> bytes:
    """Of one that cannot be read nothing, which who decodes it will say."""
    try:
        return picture_bytes(picture, name)
    except BrokenImageError:
        return b""
