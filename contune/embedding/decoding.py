"""Chunks of encoded images → batches of pixels; what cannot be decoded is set aside.

Shapes: B images, C channels, S side.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from contune.data.broken import Broken, BrokenImageError
from contune.data.decode import decode_image
from contune.embedding.item import Item


class Decoded(NamedTuple):
    names: list[str]
    labels: list[str | None]
    x_BCSS: np.ndarray
    """uint8"""
    broken: list[Broken]
    sentence: str
    """Of the first broken one."""

    @property
    def num_seen(self) -> int:
        return len(self.names) + len(self.broken)


def decode_items(items: list[Item], size: int, channels: int) -> Decoded:
    images, names, broken, sentence = [], [], [], ""
    labels: list[str | None] = []
    for item in items:
        try:
            images.append(decode_image(item.content, item.name, size=size, channels=channels))
        except BrokenImageError as error:
            broken.append(Broken(item.name, error.reason))
            sentence = sentence or str(error)
            continue
        names.append(item.name)
        labels.append(item.label)
    x_BCSS = np.stack(images) if images else np.empty((0, channels, size, size), np.uint8)
    return Decoded(names, labels, x_BCSS, broken, sentence)


def batched(parts: Iterable[Decoded], batch: int) -> Iterator[Decoded]:
    """Parts joined until they are a batch or more."""
    waiting: list[Decoded] = []
    for part in parts:
        waiting.append(part)
        if sum(part.num_seen for part in waiting) >= batch:
            yield _joined(waiting)
            waiting = []
    if waiting:
        yield _joined(waiting)


def _joined(parts: list[Decoded]) -> Decoded:
    return Decoded(
        [name for part in parts for name in part.names],
        [label for part in parts for label in part.labels],
        np.concatenate([part.x_BCSS for part in parts]),
        [broken for part in parts for broken in part.broken],
        next((part.sentence for part in parts if part.sentence), ""),
    )
