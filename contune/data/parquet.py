"""Read parquet files in the layout of the Hugging Face hub."""

import json
import os
import re
import tempfile
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from torch import Tensor

from contune.data.decode import Encoded
from contune.data.folder import SPLIT_OF, visible_files
from contune.data.images import ImageSet, Splits, distinct
from contune.errors import UserError, unknown

IMAGE_COLUMNS = ("image", "img", "images", "picture", "photo", "pixel_values")
LABEL_COLUMNS = ("label", "labels", "fine_label", "class", "target", "y")
HIDDEN = -1
"""What the hub writes for every image of a test split whose labels are secret."""
_ROWS_AT_ONCE = 64
_BUFFER_BYTES = 2**20
"""Columns are read through a window of this size, because a row group may be as large as the file."""


class Spool:
    """An unnamed temporary file with encoded images, which all worker processes read.

    Parquet has no random access to a row: its row group must be decompressed first. So the images are copied once,
    a few rows at a time. The file has no name, so it disappears with its last process, however that process ends.
    """

    def __init__(self) -> None:
        self._file: Any = tempfile.TemporaryFile()  # noqa: SIM115  (lives as long as this object)
        weakref.finalize(self, self._file.close)

    def add(self, image: Any) -> Callable[[], bytes]:
        """Append an Arrow scalar of bytes, and return the function that reads it. A missing value is an empty image."""
        start = self._file.tell()
        length = self._file.write(image.as_buffer() if image.is_valid else b"")
        return partial(self.read, length, start)

    def flush(self) -> None:
        self._file.flush()

    def read(self, length: int, start: int) -> bytes:
        return os.pread(self._file.fileno(), length, start)

    def __getstate__(self) -> Any:
        return DupFd(self._file.fileno())  # only for workers that are not forked

    def __setstate__(self, state: Any) -> None:
        self._file = os.fdopen(state.detach(), "rb")


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
    schemas = {split: _common_schema(shards) for split, shards in by_split.items()}
    label = label_of(schemas["train"], label_column, str(path))
    sets: dict[str, ImageSet] = {}
    values: dict[str, list[Any]] = {}
    for split, shards in by_split.items():
        own_label = label if label in schemas[split].names else None
        sets[split], own_values = read_shards(shards, own_label)
        if own_label is not None:
            values[split] = own_values
    return labeled(sets, values, names_in_metadata(schemas["train"], label), f"column {label!r} of {path}")


def read_shards(shards: Sequence[str], label: str | None) -> tuple[ImageSet, list[Any]]:
    """The encoded images of some shards, named 'shard#row', and their labels."""
    sources: list[Encoded] = []
    names: list[str] = []
    values: list[Any] = []
    try:
        spool = Spool()
        for shard in shards:
            schema = read_schema(shard)
            column = image_column(schema, shard)
            is_struct = pa.types.is_struct(schema.field(column).type)
            wanted = [f"{column}.bytes" if is_struct else column, *([] if label is None else [label])]
            with pq.ParquetFile(shard, buffer_size=_BUFFER_BYTES, pre_buffer=False) as file:
                for rows in file.iter_batches(_ROWS_AT_ONCE, columns=wanted):
                    images = pc.struct_field(rows[column], "bytes") if is_struct else rows[column]
                    sources += [spool.add(image) for image in images]
                    values += [None] * len(rows) if label is None else rows[label].to_pylist()
            names += [f"{shard}#{row}" for row in range(len(sources) - len(names))]
        spool.flush()
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno:
            raise UserError(
                f"the temporary folder cannot hold these images ({error}); set TMPDIR to another"
            ) from error
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
    binaries = [field.name for field in schema if _is_binary(field.type)]
    structs = [
        field.name
        for field in schema
        if pa.types.is_struct(field.type) and any(part.name == "bytes" and _is_binary(part.type) for part in field.type)
    ]
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


def _common_schema(shards: list[str]) -> Any:
    first = read_schema(shards[0])
    for shard in shards[1:]:
        if not read_schema(shard).equals(first):
            raise UserError(f"{shard!r} and {shards[0]!r} have different columns; use one data set at a time")
    return first


def labeled(
    splits: Mapping[str, ImageSet], values: Mapping[str, list[Any]], names: tuple[str, ...] | None, where: str
) -> Splits:
    """Splits with labels, which are positions in the class names; of lists of labels, a matrix (N, K) of 0 and 1.

    The sorted values of all splits are the classes. Integers are positions in the `names` of the metadata, which may
    have many more. A split in which every label is −1 has no labels.
    """
    for split, images in splits.items():
        if not len(images):
            raise UserError(f"the {split} split has no image ({where})")
    values = {split: column for split, column in values.items() if any(value != HIDDEN for value in column)}
    is_matrix = any(isinstance(value, list) for column in values.values() for value in column)
    sets = {split: [v if isinstance(v, list) else [v] for v in column] for split, column in values.items()}
    different = {value for column in sets.values() for row in column for value in row}
    if not all(isinstance(value, int | str) for value in different):
        raise UserError(f"{where} must hold an integer or string in every row; choose another label column")
    position = {value: number for number, value in enumerate(sorted(different))}
    labels: dict[str, Tensor] = {}
    for split, column in sets.items():
        if is_matrix:
            labels[split] = torch.zeros(len(column), len(position))
            for label_K, row in zip(labels[split].numpy(), column, strict=True):
                label_K[[position[value] for value in row]] = 1
        else:
            labels[split] = torch.tensor([position[value] for (value,) in column])
    class_names = tuple(map(str, position))
    if names is not None and not any(isinstance(value, str) for value in different):
        outside = [value for value in position if not 0 <= value < len(names)]
        if outside:
            raise UserError(f"label {outside[0]} in {where} is outside its {len(names)} class names; drop those rows")
        class_names = tuple(names[value] for value in position)
    parts = {split: replace(images, labels=labels.get(split)) for split, images in splits.items()}
    return Splits(**parts, class_names=class_names)  # type: ignore[arg-type]  # all are ImageSets


def _is_binary(kind: Any) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))
