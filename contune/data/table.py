"""Read a CSV file that lists images with their labels, such as the `metadata.csv` of Hugging Face image folders."""

import csv
import os
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from contune.console import plural
from contune.data.folder import SPLIT_OF, path_as_text, split_folders
from contune.data.images import ImageSet, Rows, Splits
from contune.data.parquet import LABEL_COLUMNS
from contune.errors import UserError, check_known

TABLE_NAME = "metadata.csv"
FILE_COLUMNS = ("file_name", "path", "file", "filename", "image")
SPLIT_COLUMN = "split"
SEPARATORS = re.compile(r"[;|]")
"""Between several labels in one cell."""
JOINT = "; "
"""Between several labels in what contune writes."""


def find_tables(path: Path) -> dict[str, Path]:
    """Tables by their split: a .csv file, a folder's `metadata.csv`, or those in its folders `train`, `test`, …"""
    if path.is_file():
        return {"train": path} if path.suffix.lower() == ".csv" else {}
    if (path / TABLE_NAME).is_file():
        return {"train": path / TABLE_NAME}
    tables = {split: folder / TABLE_NAME for split, folder in split_folders(path).items()} if path.is_dir() else {}
    return tables if all(table.is_file() for table in tables.values()) else {}


def read_rows(tables: dict[str, Path], label_column: str | None = None) -> Rows:
    """All rows. Paths are relative to the folder of their table. A column `split` decides over the table's split.

    With several label columns, a label is `column=value`. An image has none if one of the cells is empty.
    """
    paths: list[str] = []
    labels: list[list[str]] = []
    splits: list[str] = []
    for own_split, table in tables.items():
        try:
            with table.open(newline="", encoding="utf-8-sig") as file:  # spreadsheets begin with a byte order mark
                reader = csv.DictReader(file, strict=True)
                names, rows = list(reader.fieldnames or ()), list(reader)
        except (csv.Error, UnicodeDecodeError) as error:
            raise UserError(f"{str(table)!r} is not a CSV file in UTF-8 ({error}); save it as one") from error
        lower = {name.lower(): name for name in reversed(names)}
        file_column = next((lower[name] for name in FILE_COLUMNS if name in lower), None)
        if file_column is None:
            raise UserError(f"{str(table)!r} has no column of file names; call it {FILE_COLUMNS[0]}")
        columns = _label_columns(names, label_column, table)
        prefixes = [f"{name}=" if len(columns) > 1 else "" for name in columns]
        for row in rows:
            paths.append(os.path.normpath(table.parent / (row[file_column] or "")))
            cells = [[part.strip() for part in SEPARATORS.split(row[name] or "") if part.strip()] for name in columns]
            own_labels = [prefix + part for prefix, parts in zip(prefixes, cells, strict=True) for part in parts]
            labels.append(own_labels if all(cells) else [])
            split = (row[lower[SPLIT_COLUMN]] or "").strip().lower() if SPLIT_COLUMN in lower else own_split
            if split not in SPLIT_OF:
                raise UserError(f"{str(table)!r} has {split!r} in column {SPLIT_COLUMN!r}; use train, val or test")
            splits.append(SPLIT_OF[split])
    where = " and ".join(repr(str(table)) for table in tables.values())
    missing = [path_as_text(path) for path in paths if not os.path.isfile(path)]
    if missing:
        many = f"{len(missing):,} of {plural(len(paths), 'image')}"
        raise UserError(f"{many} listed in {where} are missing, such as {missing[0]!r}; correct the paths")
    for path, times in Counter(paths).most_common(1):
        if times > 1:
            fix = "keep one row, with several labels separated by ';'"
            raise UserError(f"{where} lists {path_as_text(path)!r} {times} times; {fix}")
    return Rows(ImageSet(images=paths, names=list(map(path_as_text, paths))), labels, splits)


def table_splits(tables: dict[str, Path], label_column: str | None = None) -> Splits:
    """Images and labels for training. Several label columns, or cells with several labels, make a label matrix."""
    rows = read_rows(tables, label_column)
    if all(name.isdecimal() and str(int(name)) == name for labels in rows.labels for name in labels):
        rows = rows._replace(labels=[list(map(int, labels)) for labels in rows.labels])  # sorted as numbers
    return rows.to_splits(" and ".join(repr(str(table)) for table in tables.values()))


def _label_columns(names: Sequence[str], wanted: str | None, table: Path) -> list[str]:
    """The wanted columns, else the first usual name, if any."""
    if wanted is None:
        return [name for name in LABEL_COLUMNS if name in names][:1]
    columns = [wanted] if wanted in names else [part.strip() for part in wanted.split(",")]
    for column in columns:
        check_known(f"label column of {str(table)!r}", column, names)
    return columns
