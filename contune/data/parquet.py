"""Parquet files as the Hugging Face hub has them → splits."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch

from contune.data.arrow_column import ArrowColumn
from contune.data.images import EncodedImages
from contune.data.imageset import ImageSet, Splits
from contune.data.parquet_columns import image_column, label_column_of, maybe_labels, names_in_metadata
from contune.data.parquet_labels import class_positions
from contune.data.sequences import NumberedNames
from contune.data.walk import visible_files
from contune.errors import UserError

_SPLIT_WORDS = {
    "train": ("train", "training"),
    "test": ("test", "testing"),
    "val": ("validation", "valid", "val", "dev"),
}


def find_shards(path: Path) -> list[str]:
    """The parquet files at a path: itself, or everything visible under the folder."""
    if path.is_file():
        return [str(path)] if path.suffix.lower() == ".parquet" else []
    return visible_files(path, (".parquet",))


def parquet_splits(path: Path, label_column: str | None = None) -> Splits:
    """Encoded images in a struct column with `bytes`, or in a binary one; labels in a column beside it.

    A file belongs to the split that its name begins with (`train-00000-of-00002.parquet`), else that its
    folder is named after. A folder where no file names a split is all training data; where some do, the
    others are left alone. The encoded bytes stay in memory, in Arrow's own buffers.
    """
    by_split = _by_split(find_shards(path), path)
    schemas = {split: _common_schema(shards) for split, shards in by_split.items()}
    schema = schemas["train"]
    label = label_column_of(schema, label_column, str(path))
    tables = {split: _read(shards, schemas[split], label) for split, shards in by_split.items()}
    columns = {} if label is None else {split: table[1] for split, table in tables.items()}
    labels, class_names = class_positions(columns, names_in_metadata(schema, label), label, str(path))
    sets = {split: _image_set(by_split[split], images, labels.get(split)) for split, (images, _) in tables.items()}
    return Splits(
        train=sets["train"],
        test=sets.get("test"),
        val=sets.get("val"),
        class_names=class_names,
        maybe_labels=maybe_labels(schema, image_column(schema, str(path))) if label is None else (),
    )


def _by_split(shards: list[str], path: Path) -> dict[str, list[str]]:
    if path.is_file():
        return {"train": shards}
    named: dict[str, list[str]] = {}
    for shard in shards:
        split = _split_of(Path(shard).relative_to(path))
        if split is not None:
            named.setdefault(split, []).append(shard)
    if not named:
        return {"train": shards}
    if "train" not in named:
        raise UserError(
            f"{str(path)!r} holds no training shard, only such as {Path(shards[0]).name!r}; "
            "add train-*.parquet, or give one file by its own path"
        )
    return named


def _split_of(shard: Path) -> str | None:
    for name in (shard.stem, shard.parent.name):
        first_word = re.split(r"[^a-z]", name.lower(), maxsplit=1)[0]
        for split, words in _SPLIT_WORDS.items():
            if first_word in words:
                return split
    return None


def _common_schema(shards: list[str]) -> Any:
    first, *others = [_schema(shard) for shard in shards]
    for shard, schema in zip(shards[1:], others, strict=True):
        if not schema.equals(first):
            raise UserError(
                f"{shard!r} and {shards[0]!r} have different columns ({', '.join(schema.names)}; "
                f"{', '.join(first.names)}); give one data set at a time"
            )
    return first


def _schema(shard: str) -> Any:
    try:
        return pq.read_schema(shard)
    except pa.ArrowInvalid as error:
        raise UserError(f"{shard!r} is not a whole parquet file; fetch it again") from error


def _read(shards: list[str], schema: Any, label: str | None) -> tuple[Any, Any]:
    """The encoded images and, where there are any, the labels of these shards."""
    column = image_column(schema, shards[0])
    is_struct = pa.types.is_struct(schema.field(column).type)
    wanted = [f"{column}.bytes" if is_struct else column]
    if label is not None and label in schema.names:
        wanted.append(label)
    table = pa.concat_tables([_read_shard(shard, wanted) for shard in shards])
    images = pc.struct_field(table[column], "bytes") if is_struct else table[column]
    if images.null_count:
        raise UserError(
            f"{shards[0]!r} has {images.null_count} rows without image bytes in column {column!r}; "
            "embed the files, or give their folder instead"
        )
    if not len(images):
        raise UserError(f"{shards[0]!r} holds no row; fetch it again or give another file")
    return images, table[label] if len(wanted) > 1 else None


def _read_shard(shard: str, columns: list[str]) -> Any:
    try:
        with pq.ParquetFile(shard) as file:
            return file.read(columns=columns).replace_schema_metadata(None)
    except (pa.ArrowInvalid, OSError) as error:
        raise UserError(f"{shard!r} is not a whole parquet file; fetch it again") from error


def _image_set(shards: list[str], images: Any, labels: np.ndarray | None) -> ImageSet:
    sources = ArrowColumn(images)
    names = NumberedNames((shard, pq.read_metadata(shard).num_rows) for shard in shards)
    return ImageSet(
        images=EncodedImages(sources, names),
        labels=None if labels is None else torch.tensor(labels),
        names=names,
    )
