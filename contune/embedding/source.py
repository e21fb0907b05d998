"""Where images come from: a folder, parquet, or a list, a chunk at a time, from any position on."""

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from contune.data.folder import IMAGE_SUFFIXES, SPLIT_FOLDERS, split_folders
from contune.data.parquet import find_shards
from contune.data.walk import visible_files
from contune.embedding.item import Item, as_text
from contune.embedding.list_source import Given, ListSource
from contune.embedding.parquet_source import ParquetSource
from contune.errors import UserError

CHUNK = 32
"""Images that a worker decodes in one go."""
CHUNK_BYTES = 2**22
"""Or fewer, where they come out of parquet and are large."""


@runtime_checkable
class Source(Protocol):
    @property
    def num(self) -> int: ...

    def images(self, start: int) -> Iterator[Item]:
        """From the position `start` on, always in the same order."""
        ...

    def identity(self) -> str:
        """The same for the same images: a job that was stopped goes on only with these."""
        ...


@dataclass(frozen=True)
class FolderSource:
    """The files of a folder by path. A million of them take about 150 MB to list."""

    folder: Path
    paths: Sequence[str]

    @property
    def num(self) -> int:
        return len(self.paths)

    def images(self, start: int) -> Iterator[Item]:
        splits = self._splits()
        for path in self.paths[start:]:
            yield Item(as_text(path), path, self._label(path, splits))

    def identity(self) -> str:
        return hashlib.sha256(b"\0".join(os.fsencode(path) for path in self.paths)).hexdigest()

    def _splits(self) -> set[str]:
        """The top folders that are splits: as in training, or all where they are `test` and the like alone."""
        names = {name for names in SPLIT_FOLDERS.values() for name in names}
        tops = {self._inside(path)[0] for path in self.paths}
        if {top.lower() for top in tops} <= names:
            return tops
        return {part.name for part in split_folders(self.folder).values()}

    def _label(self, path: str, splits: set[str]) -> str | None:
        """The folder named after a class, as in training; None for a file outside of any."""
        top, *below = self._inside(path)
        folders = below[:-1] if top in splits else [top, *below][:-1]
        return as_text(folders[0]) if folders else None

    def _inside(self, path: str) -> tuple[str, ...]:
        return Path(path).relative_to(self.folder).parts


Images = str | Path | Sequence[Given] | Source
"""A folder with images at any depth, an image, or parquet: a file or a folder of them. Or a list of paths or pictures.

Or what `open_source` made.
"""


def open_source(images: Images, label_column: str | None = None) -> Source:
    """`label_column` is for parquet, where its name is unusual."""
    if isinstance(images, str | Path):
        return _open_path(images, label_column)
    if label_column is not None:
        raise UserError(f"a label column, {label_column!r}, is for the path of parquet; leave it out")
    if isinstance(images, Source):
        return images
    if isinstance(images, Sequence):
        return ListSource.open(images)
    raise UserError(
        f"images of type {type(images).__name__} are given; give a folder, an image, parquet, or a list of paths or "
        "pictures (PIL); pixels go to the encoder itself: contune.load_encoder(run)(uint8 tensor of shape (N, C, H, W))"
    )


def _open_path(images: str | Path, label_column: str | None) -> Source:
    path = Path(images).expanduser()
    try:
        if not os.path.lexists(path):
            raise UserError(f"there is no file or folder at {str(images)!r}; give images, a folder of them or parquet")
        shards = find_shards(path)
        if shards:
            return _with_rows(ParquetSource.open(shards, label_column), images)
        if label_column is not None:
            raise UserError(f"a label column is for parquet, and {str(images)!r} is none; leave it out")
        if not path.is_dir():
            return ListSource([path])
        paths = visible_files(path, IMAGE_SUFFIXES)
    except OSError as error:
        raise UserError(f"cannot read {str(error.filename or images)!r}: {error.strerror}") from error
    if not paths:
        raise UserError(f"{str(images)!r} holds no image ({', '.join(IMAGE_SUFFIXES)}) and no parquet")
    return FolderSource(path, paths)


def _with_rows(source: ParquetSource, images: str | Path) -> ParquetSource:
    if not source.num:
        raise UserError(f"{str(images)!r} holds no row; fetch it again or give another file")
    return source


def chunks(source: Source, start: int) -> Iterator[list[Item]]:
    """What workers get, small enough that many of them on the way are not much."""
    chunk: list[Item] = []
    num_bytes = 0
    for item in source.images(start):
        chunk.append(item)
        num_bytes += len(item.content)
        if len(chunk) == CHUNK or num_bytes >= CHUNK_BYTES:
            yield chunk
            chunk, num_bytes = [], 0
    if chunk:
        yield chunk
