"""Broken images are found before training and left out of it.

A run that skips them is the run on the same files without them: nothing else moves, whether images stream or not.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from contune import distributed
from contune.console import progress
from contune.data.broken import Broken, BrokenImageError
from contune.data.decode import verify
from contune.data.images import EncodedImages
from contune.data.imageset import ImageSet, Splits
from contune.data.picture_file import Encoded
from contune.data.pool import decoding_pool
from contune.errors import UserError

CHUNK = 64


class Chunk(NamedTuple):
    """A few images on their way to a worker."""

    start: int
    sources: list[str | bytes]
    names: list[str]


def without_broken(splits: Splits) -> tuple[Splits, tuple[Broken, ...]]:
    """The splits without the images that cannot be decoded, and a list of those, in the order of the files."""
    skipped: list[Broken] = []
    whole: dict[str, ImageSet] = {}
    for part in ("train", "test", "val"):
        images: ImageSet | None = getattr(splits, part)
        if images is not None:
            whole[part] = _screened(images, part, skipped)
    return replace(splits, **whole), tuple(skipped)  # type: ignore[arg-type]  # the three are all ImageSets


def chunks_of(sources: Sequence[Encoded], names: Sequence[str], positions: Iterable[int]) -> Iterator[Chunk]:
    """Runs of consecutive positions, each beginning at one of `positions`."""
    for start in positions:
        inside = range(start, min(start + CHUNK, len(sources)))
        yield Chunk(start, [_portable(sources[index]) for index in inside], [names[index] for index in inside])


def _screened(images: ImageSet, part: str, skipped: list[Broken]) -> ImageSet:
    if not isinstance(images.images, EncodedImages):
        return images
    reasons = _reasons(images.images, part)
    if not reasons:
        return images
    if len(reasons) == len(images):
        name, reason = images.names[0], next(iter(reasons.values()))
        raise UserError(f"no {part} image can be decoded; the first, {name!r}, {reason}")
    skipped += [Broken(images.names[index], reason) for index, reason in reasons.items()]
    return images.subset(np.setdiff1d(np.arange(len(images)), list(reasons)))


def _reasons(images: EncodedImages, part: str) -> dict[int, str]:
    """Why each broken one is, by position. Several processes share the work."""
    rank, world = distributed.rank(), distributed.world_size()
    starts = range(rank * CHUNK, len(images), world * CHUNK)
    found: dict[int, str] = {}
    with progress(f"check {part}", len(images), unit="images") as advance, decoding_pool(len(images)) as pool:
        for number, reasons in enumerate(pool.map(_verified, chunks_of(images.sources, images.names, starts)), 1):
            found |= reasons
            advance(min(number * world * CHUNK, len(images)), f"{len(found)} broken" if found else "")
    everyones = {index: reason for share in distributed.gather_objects(found) for index, reason in share.items()}
    return dict(sorted(everyones.items()))


def _verified(chunk: Chunk) -> dict[int, str]:
    reasons: dict[int, str] = {}
    for number, (source, name) in enumerate(zip(chunk.sources, chunk.names, strict=True)):
        try:
            verify(source, name)
        except BrokenImageError as error:
            reasons[chunk.start + number] = error.reason
    return reasons


def _portable(source: Encoded) -> str | bytes:
    """Views into Arrow's memory do not travel to another process."""
    return bytes(source) if isinstance(source, memoryview) else source
