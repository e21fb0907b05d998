"""Read parquet files in the layout of the Hugging Face hub."""

import json
import os
import re
import tempfile
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from contune.data.decode import Encoded
from contune.data.folder import LABEL_COLUMNS, SPLIT_OF, labeled, visible_files
from contune.data.images import ImageSet, Splits, distinct
from contune.errors import UserError, unknown

IMAGE_COLUMNS = ("image", "img", "images", "picture", "photo", "pixel_values")
_ROWS_AT_ONCE = 64
_BUFFER_BYTES = 2**20
"""Columns are read through a window of this size, because a row group may be as large as the file."""


class Spool:
    """An unnamed temporary file with encoded images, which all worker processes read.

    Parquet has no random access to a row: its row group must be decompressed first. So the images are copied once,
    a few rows at a time. The file has no name, so it disappears with its last process, however that process ends.
    """

    def __init__(self) -> None:
        self.file: Any = tempfile.TemporaryFile()  # noqa: SIM115  (lives as long as this object)
        weakref.finalize(self, self.file.close)

    def add(self, image: Any) -> Callable[[], bytes]:
        """Append an Arrow scalar of bytes, and return the function that reads it. A missing value is an empty image."""
        start = self.file.tell()
        length = self.file.write(image.as_buffer() if image.is_valid else b"")
        return partial(self.read, length, start)

    def read(self, length: int, start: int) -> bytes:
        return os.pread(self.file.fileno(), length, start)

    def __getstate__(self) -> Any:
        return DupFd(self.file.fileno())  # only for workers that are not forked

    def __setstate__(self, state: Any) -> None:
        self.file = os.fdopen(state.detach(), "rb")


def find_shards(path: Path) -> list[str]:
    """The parquet files at a path: the file itself, or everything visible under the folder."""
    if path.is_file():
        return [str(path)] if path.suffix.lower() == ".parquet" else []
    return visible_files(path, (".parquet",))


def parquet_splits(path: Path, label_column: str | None = None) -> Splits:
    """Encoded images in a struct column with `bytes`, or in a binary column; labels in another column.

    A file belongs to the split that its name starts with (`train-00000-of-00002.parquet`), else to the split its
    folder is named after. If no file names a split, all are training data; if some do, the others are ignored.
    """
    by_split = _by_split(find_shards(path), path)
    schema = read_schema(by_split["train"][0])
    label = label_of(schema, label_column, str(path))
    if len({names_in_metadata(read_schema(shard), label) for shard in chain(*by_split.values())} - {None}) > 1:
        raise UserError(f"the files of {str(path)!r} name the classes of {label!r} differently; write them again")
    read = {split: read_shards(shards, label) for split, shards in by_split.items()}
    return labeled(read, names_in_metadata(schema, label), f"column {label!r} of {path}")


def read_shards(shards: Sequence[str], label: str | None) -> tuple[ImageSet, list[Any]]:
    """The encoded images of some shards, named 'shard#row', and their labels; None for a shard without this column."""
    sources: list[Encoded] = []
    names: list[str] = []
    values: list[Any] = []
    try:
        spool = Spool()
        for shard in shards:
            schema = read_schema(shard)
            column = image_column(schema, shard)
            is_struct = pa.types.is_struct(schema.field(column).type)
            own_label = [name for name in schema.names if name == label]
            wanted = [f"{column}.bytes" if is_struct else column, *own_label]
            with pq.ParquetFile(shard, buffer_size=_BUFFER_BYTES, pre_buffer=False) as file:
                for rows in file.iter_batches(_ROWS_AT_ONCE, columns=wanted):
                    images = pc.struct_field(rows[column], "bytes") if is_struct else rows[column]
                    sources += [spool.add(image) for image in images]
                    values += rows[label].to_pylist() if own_label else [None] * len(rows)
            names += [f"{shard}#{row}" for row in range(len(sources) - len(names))]
        spool.file.flush()
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno:
            raise UserError(f"the temporary folder is too small ({error}); set TMPDIR to another") from error
        raise UserError(f"{shard!r} is not a complete parquet file; fetch it again") from error
    pa.default_memory_pool().release_unused()  # it would keep several hundred MB of large row groups
    return ImageSet(images=sources, names=names), values


def read_schema(shard: str) -> Any:
    try:
        return pq.read_schema(shard)
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"{shard!r} is not a complete parquet file; fetch it again") from error


def image_column(schema: Any, where: str) -> str:
    """The first usual name that holds encoded images, else the first such struct, else the first binary column."""
    kinds = (pa.binary(), pa.large_binary())
    binaries = [field.name for field in schema if field.type in kinds]
    parts = {field.name: list(field.type) for field in schema if pa.types.is_struct(field.type)}
    structs = [name for name, inside in parts.items() if any(p.name == "bytes" and p.type in kinds for p in inside)]
    usual = [name for name in IMAGE_COLUMNS if name in structs or name in binaries]
    found: list[str] = [*usual, *structs, *binaries]
    if not found:
        fix = "one must be binary, or a struct with a binary field 'bytes'"
        raise UserError(f"{where!r} has no column of encoded images, only {', '.join(schema.names)}; {fix}")
    return found[0]


def label_of(schema: Any, wanted: str | None, where: str) -> str | None:
    """The wanted column, else the first usual name, else the metadata's first ClassLabel, if any."""
    if wanted is not None and wanted not in schema.names:
        raise unknown(f"label column of {where!r}", wanted, schema.names)
    usual = [name for name in LABEL_COLUMNS if name in schema.names]
    class_labels = [name for name in schema.names if names_in_metadata(schema, name) is not None]
    return wanted or next(iter([*usual, *class_labels]), None)


def names_in_metadata(schema: Any, label: str | None) -> tuple[str, ...] | None:
    """Class names as `datasets` writes them: schema metadata `huggingface`, features, ClassLabel, names."""
    try:
        feature = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"][label]
        feature = feature.get("feature", feature)  # of a list
        is_class_label = feature["_type"] == "ClassLabel" and isinstance(feature["names"], list)
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
    return distinct(map(str, feature["names"])) if is_class_label else None


def _by_split(shards: list[str], path: Path) -> dict[str, list[str]]:
    named: dict[str, list[str]] = {}
    for shard in shards if path.is_dir() else []:
        relative = Path(shard).relative_to(path)
        words = [re.split(r"[^a-z]", name.lower(), maxsplit=1)[0] for name in (relative.stem, relative.parent.name)]
        if splits := [SPLIT_OF[word] for word in words if word in SPLIT_OF]:
            named.setdefault(splits[0], []).append(shard)
    if named and "train" not in named:
        raise UserError(f"{str(path)!r} holds no training shard; add train-*.parquet, or use the path of one file")
    return named or {"train": shards}
