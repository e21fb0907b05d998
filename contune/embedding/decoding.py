"""Encoded images → batches of pixels; what cannot be decoded is set aside.

Shapes: B images, C channels, S side.
"""

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import NamedTuple

import numpy as np

from contune.data.broken import Broken, BrokenImageError
from contune.data.decode import decode_image
from contune.embedding.item import Item


class Picture(NamedTuple):
    name: str
    label: str | None
    x_CSS: np.ndarray
    """uint8"""


class Undecodable(NamedTuple):
    broken: Broken
    sentence: str


class Decoded(NamedTuple):
    names: list[str]
    labels: list[str | None]
    x_BCSS: np.ndarray | None
    """uint8; None where nothing could be decoded."""
    broken: list[Broken]
    sentence: str
    """Of the first broken one."""


def decode_items(items: list[Item], size: int, channels: int) -> list[Picture | Undecodable]:
    return [_decode(item, size, channels) for item in items]


def batched(parts: Iterable[list[Picture | Undecodable]], batch: int) -> Iterator[Decoded]:
    """The images of all parts in their order, `batch` at a time, broken ones counted too."""
    images = chain.from_iterable(parts)
    while taken := list(islice(images, batch)):
        pictures = [image for image in taken if isinstance(image, Picture)]
        failed = [image for image in taken if isinstance(image, Undecodable)]
        yield Decoded(
            names=[picture.name for picture in pictures],
            labels=[picture.label for picture in pictures],
            x_BCSS=np.stack([picture.x_CSS for picture in pictures]) if pictures else None,
            broken=[image.broken for image in failed],
            sentence=failed[0].sentence if failed else "",
        )


def _decode(item: Item, size: int, channels: int) -> Picture | Undecodable:
    try:
        return Picture(item.name, item.label, decode_image(item.content, item.name, size=size, channels=channels))
    except BrokenImageError as error:
        return Undecodable(Broken(item.name, error.reason), str(error))
