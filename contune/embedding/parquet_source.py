"""Images out of parquet without ever holding more than a few of them."""

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from contune.data.parquet_columns import image_column, label_column_of, names_in_metadata
from contune.data.parquet_labels import HIDDEN
from contune.embedding.item import Item
from contune.errors import UserError

ROWS_AT_ONCE = 64
BUFFER_BYTES = 2**20
"""A column is read through a window of this size: a row group may be as large as the file."""


@dataclass(frozen=True)
class ParquetSource:
    shards: Sequence[str]
    counts: Sequence[int]
    label_column: str | None = None
    """None: the first of a usual name."""

    @classmethod
    def open(cls, shards: Sequence[str], label_column: str | None = None) -> "ParquetSource":
        return cls(shards, [_num_rows(shard, label_column) for shard in shards], label_column)

    @property
    def num(self) -> int:
        return sum(self.counts)

    def images(self, start: int) -> Iterator[Item]:
        for shard, count in zip(self.shards, self.counts, strict=True):
            if start < count:
                yield from _rows(shard, start, self.label_column)
            start = max(0, start - count)

    def identity(self) -> str:
        parts = [(shard, count, os.path.getsize(shard)) for shard, count in zip(self.shards, self.counts, strict=True)]
        known = parts if self.label_column is None else (parts, self.label_column)
        return hashlib.sha256(repr(known).encode()).hexdigest()


def _num_rows(shard: str, label_column: str | None) -> int:
    """Of a shard that has such a column."""
    file = _open(shard)
    label_column_of(file.schema_arrow, label_column, shard)
    return int(file.metadata.num_rows)


def row_item(shard: str, row: int) -> Item | None:
    """One row; None where there is none of that number."""
    return next(_rows(shard, row), None)


def _rows(shard: str, start: int, label_column: str | None = None) -> Iterator[Item]:
    file = _open(shard)
    schema = file.schema_arrow
    column, label = image_column(schema, shard), label_column_of(schema, label_column, shard)
    label = None if label is None or _is_hidden(file.metadata, label) else label
    is_struct = pa.types.is_struct(schema.field(column).type)
    wanted = [f"{column}.bytes" if is_struct else column, *([] if label is None else [label])]
    class_names = names_in_metadata(schema, label)
    first, row = _first_group(file, start)
    try:
        groups = list(range(first, file.num_row_groups))
        for batch in file.iter_batches(ROWS_AT_ONCE, row_groups=groups, columns=wanted):
            images = pc.struct_field(batch[column], "bytes") if is_struct else batch[column]
            labels = [None] * len(batch) if label is None else batch[label].to_pylist()
            for content, value in zip(images, labels, strict=True):
                if row >= start:
                    yield Item(f"{shard}#{row}", content.as_py() or b"", _label(value, class_names))
                row += 1
    except (pa.ArrowInvalid, OSError) as error:
        raise UserError(f"{shard!r} is not a whole parquet file; fetch it again") from error


def _open(shard: str) -> Any:
    try:
        return pq.ParquetFile(shard, buffer_size=BUFFER_BYTES, pre_buffer=False)
    except (pa.ArrowInvalid, OSError) as error:
        raise UserError(f"{shard!r} is not a whole parquet file; fetch it again") from error


def _first_group(file: Any, start: int) -> tuple[int, int]:
    """The row group that holds the row `start`, and the number of its first row."""
    row = 0
    for group in range(file.num_row_groups):
        count = file.metadata.row_group(group).num_rows
        if start < row + count:
            return group, row
        row += count
    return file.num_row_groups, row


def _is_hidden(metadata: Any, label: str) -> bool:
    """Whether every label is −1, by what the file says of its columns: such are none, as in training."""
    numbers = [n for n in range(metadata.num_columns) if metadata.schema.column(n).path == label]
    groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
    found = [group.column(number).statistics for group in groups for number in numbers]
    return bool(found) and all(
        facts is not None and facts.has_min_max and facts.min == facts.max == HIDDEN for facts in found
    )


def _label(value: Any, class_names: tuple[str, ...] | None) -> str | None:
    if value is None or (value == HIDDEN and class_names is not None):
        return None
    if isinstance(value, bool):
        value = int(value)  # as in training
    if class_names is not None and isinstance(value, int) and 0 <= value < len(class_names):
        return class_names[value]
    return str(value)
