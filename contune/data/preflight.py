"""Every image of a data set, read and decoded once before anything is trained on it: what is there, what is wrong."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from contune.console import progress
from contune.data.broken import Broken
from contune.data.datasets import Request, open_splits, unreadable
from contune.data.folder import IMAGE_SUFFIXES
from contune.data.images import EncodedImages
from contune.data.imageset import ImageSet
from contune.data.inspection import Inspection, inspect, inspect_pixels
from contune.data.parquet import find_shards
from contune.data.pool import decoding_pool
from contune.data.screen import CHUNK, Chunk, chunks_of
from contune.data.walk import circular_links, visible_files
from contune.errors import UserError


@dataclass(kw_only=True)
class SplitFacts:
    """What the images of one split are."""

    name: str
    num: int
    broken: list[Broken] = field(default_factory=list)
    constant: list[str] = field(default_factory=list)
    sides: Counter[tuple[int, int]] = field(default_factory=Counter)
    """(width, height) of those that decode."""
    kinds: Counter[str] = field(default_factory=Counter)
    num_gray: int = 0
    classes: dict[str, int] = field(default_factory=dict)
    """Images that decode, by class; empty without labels."""


@dataclass(frozen=True, kw_only=True)
class Copies:
    """Images that are the same picture."""

    names: tuple[str, ...]
    splits: tuple[str, ...]
    """Of each name."""
    labels: tuple[str | None, ...]
    same_bytes: bool


@dataclass(frozen=True, kw_only=True)
class Preflight:
    path: str
    splits: list[SplitFacts]
    copies: list[Copies]
    left_alone: Counter[str]
    """Files of a folder that are no images by their name, by suffix."""
    circular_links: list[str]
    maybe_labels: tuple[str, ...] = ()
    """As `Splits` has them."""


def preflight(path: str, *, label_column: str | None = None, workers: int | None = None) -> Preflight:
    """Reads all of a folder or parquet as training would; what is wrong with its structure is a UserError."""
    try:
        splits = open_splits(path, Request(label_column=label_column))
        left_alone, circular = _around(Path(path).expanduser())
    except OSError as error:
        raise UserError(unreadable(error)) from error
    facts: list[SplitFacts] = []
    seen: dict[bytes, list[tuple[str, str, str | None, bytes]]] = {}
    for name, images in (("train", splits.train), ("val", splits.val), ("test", splits.test)):
        if images is None:
            continue
        class_names = () if images.labels is None else splits.class_names
        found = SplitFacts(name=name, num=len(images), classes=dict.fromkeys(class_names, 0))
        labels = None if images.labels is None else images.labels.tolist()
        for index, inspection in enumerate(_inspected(images, name, workers)):
            label = None if labels is None else splits.class_names[labels[index]]
            _add(found, images.names[index], label, inspection)
            if inspection.reason is None:
                seen.setdefault(inspection.picture, []).append((images.names[index], name, label, inspection.file))
        facts.append(found)
    copies = [_copies(group) for group in seen.values() if len(group) > 1]
    return Preflight(
        path=path,
        splits=facts,
        copies=copies,
        left_alone=left_alone,
        circular_links=circular,
        maybe_labels=splits.maybe_labels,
    )


def _inspected(images: ImageSet, name: str, workers: int | None) -> Iterator[Inspection]:
    with progress(name, len(images), unit="images") as advance:
        if not isinstance(images.images, EncodedImages):
            for index in range(len(images)):
                yield inspect_pixels(images.images.tensor[index].numpy())
            return
        done, num_broken = 0, 0
        with decoding_pool(len(images), workers) as pool:
            tasks = chunks_of(images.images.sources, images.names, range(0, len(images), CHUNK))
            for inspections in pool.map(_inspect_chunk, tasks):
                yield from inspections
                done += len(inspections)
                num_broken += sum(inspection.reason is not None for inspection in inspections)
                advance(done, f"{num_broken} broken" if num_broken else "")


def _inspect_chunk(chunk: Chunk) -> list[Inspection]:
    return [inspect(source, name) for source, name in zip(chunk.sources, chunk.names, strict=True)]


def _add(found: SplitFacts, name: str, label: str | None, inspection: Inspection) -> None:
    if inspection.reason is not None:
        found.broken.append(Broken(name, inspection.reason))
        return
    if inspection.constant:
        found.constant.append(name)
    found.sides[inspection.width, inspection.height] += 1
    found.kinds[inspection.kind] += 1
    found.num_gray += inspection.gray
    if label is not None:
        found.classes[label] += 1


def _copies(group: list[tuple[str, str, str | None, bytes]]) -> Copies:
    names, splits, labels, files = zip(*group, strict=True)
    return Copies(names=names, splits=splits, labels=labels, same_bytes=len(set(files)) == 1)


def _around(path: Path) -> tuple[Counter[str], list[str]]:
    if not path.is_dir() or find_shards(path):
        return Counter(), []
    others = (file for file in visible_files(path, ("",)) if not file.lower().endswith(IMAGE_SUFFIXES))
    return Counter(Path(file).suffix.lower() or "no ending" for file in others), circular_links(path)
