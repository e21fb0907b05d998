"""Predictions as a file: CSV, JSON or parquet by its name, written as they come and whole at the end."""

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from contune.embedding.predictions import Predicted
from contune.errors import UserError
from contune.files import whole_file

Write = Callable[[Predicted], None]
COLUMNS = ("path", "label", "class", "probability")
"""What every format has of an image, before the probabilities of all classes."""


def predictions_file(path: Path) -> AbstractContextManager[Write]:
    """What is yielded takes a batch. The file appears when all are written."""
    return _whole(path, _format(path).write)


def is_predictions(path: Path) -> bool:
    """Whether a file looks like one that `predictions_file` wrote."""
    return tuple(_format(path).columns(path)[: len(COLUMNS)]) == COLUMNS


@contextmanager
def _whole(path: Path, writer: Callable[[Path], AbstractContextManager[Write]]) -> Iterator[Write]:
    with whole_file(path) as part, writer(part) as write:
        yield write


@contextmanager
def _csv(path: Path) -> Iterator[Write]:
    """path, label, class, probability, then a column for each class."""
    with path.open("w", encoding="utf-8", newline="") as file:
        out = csv.writer(file)
        begun = False

        def write(part: Predicted) -> None:
            nonlocal begun
            if not begun:
                out.writerow([*COLUMNS, *(f"p({name})" for name in part.class_names)])
                begun = True
            for path, label, name, p_K in zip(part.paths, part.labels, part.classes, part.probabilities, strict=True):
                out.writerow([path, label or "", name, f"{p_K.max():.6f}", *(f"{p:.6f}" for p in p_K)])

        yield write


@contextmanager
def _json(path: Path) -> Iterator[Write]:
    """A list with an object for each image."""
    with path.open("w", encoding="utf-8", newline="\n") as file:
        separator = "[\n"

        def write(part: Predicted) -> None:
            nonlocal separator
            for path, label, name, p_K in zip(part.paths, part.labels, part.classes, part.probabilities, strict=True):
                of_each = {n: round(float(p), 6) for n, p in zip(part.class_names, p_K, strict=True)}
                row = dict(zip(COLUMNS, (path, label, name, of_each[name]), strict=True))
                file.write(separator + json.dumps(row | {"probabilities": of_each}))
                separator = ",\n"

        yield write
        file.write("[]\n" if separator == "[\n" else "\n]\n")


@contextmanager
def _parquet(path: Path) -> Iterator[Write]:
    """path, label, class, probability, and a list of all of them, whose names are in the metadata."""
    writer: Any = None

    def write(part: Predicted) -> None:
        nonlocal writer
        p_BK = part.probabilities
        columns = {
            "path": pa.array(part.paths, type=pa.string()),
            "label": pa.array(part.labels, type=pa.string()),
            "class": pa.array(part.classes, type=pa.string()),
            "probability": pa.array(p_BK.max(axis=1, initial=0.0)),
            "probabilities": pa.FixedSizeListArray.from_arrays(pa.array(p_BK.reshape(-1)), p_BK.shape[1]),
        }
        metadata = {"class_names": json.dumps(part.class_names)}
        table = pa.table(columns).replace_schema_metadata(metadata)
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)

    try:
        yield write
    finally:
        if writer is not None:
            writer.close()


def _csv_columns(path: Path) -> Sequence[str]:
    with path.open(encoding="utf-8") as file:
        return file.readline().rstrip("\n").split(",")


def _json_columns(path: Path) -> Sequence[str]:
    """Of the first image, which has a line of its own."""
    with path.open(encoding="utf-8") as file:
        file.readline()
        return list(json.loads(file.readline().rstrip(",\n")))


def _parquet_columns(path: Path) -> Sequence[str]:
    return list(pq.read_schema(path).names)


class _Format(NamedTuple):
    write: Callable[[Path], AbstractContextManager[Write]]
    columns: Callable[[Path], Sequence[str]]
    """That an existing file has."""


FORMATS = {
    ".csv": _Format(_csv, _csv_columns),
    ".json": _Format(_json, _json_columns),
    ".parquet": _Format(_parquet, _parquet_columns),
}


def _format(path: Path) -> _Format:
    if path.suffix.lower() not in FORMATS:
        raise UserError(f"--out {path} has no ending that says how to write it; give {', '.join(FORMATS)}")
    return FORMATS[path.suffix.lower()]
