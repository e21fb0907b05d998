"""List the images and labels of a folder, or of CSV files such as the `metadata.csv` of Hugging Face image folders."""

import csv
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import torch

from contune.console import plural
from contune.data.images import ImageSet, Splits
from contune.errors import UserError, check_known

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm", ".npy", ".dcm")
SPLIT_OF = {"train": "train", "training": "train", "test": "test", "testing": "test"}
SPLIT_OF |= dict.fromkeys(("val", "valid", "validation", "dev"), "val")
"""By the names of folders and the beginnings of parquet files."""
TABLE_NAME = "metadata.csv"
FILE_COLUMNS = ("file_name", "path", "file", "filename", "image")
SPLIT_COLUMN = "split"
SEPARATORS = re.compile(r"[;|]")
"""Between several labels in one cell."""
JOINT = "; "
"""Between several labels in what contune writes."""
LABEL_COLUMNS = ("label", "labels", "fine_label", "class", "target", "y")
HIDDEN = -1
"""What the Hugging Face hub writes for every image of a test split whose labels are secret."""


class Rows(NamedTuple):
    """The images that a folder or CSV files list."""

    images: ImageSet
    labels: list[list[Any]]
    """Of each image, usually one; none if there is no label."""
    splits: list[str]
    """`train`, `test` or `val`; "" for images that belong to no split."""

    def to_splits(self, where: str) -> Splits:
        """Images and labels for training; several labels of an image make a label matrix."""
        is_matrix = any(len(labels) > 1 for labels in self.labels)
        found: dict[str, tuple[ImageSet, list[Any]]] = {}
        for split in sorted({*self.splits} - {""}):
            rows = [row for row, own in enumerate(self.splits) if own == split]
            labels, images = [self.labels[row] for row in rows], self.images.subset(rows)
            without = [name for name, own in zip(images.names, labels, strict=True) if not own]
            if 0 < len(without) < len(rows):
                many = plural(len(without), "image")
                raise UserError(f"{many} without a label in {where}, such as {without[0]!r}; add labels, or move them")
            found[split] = images, [own if is_matrix else own[0] for own in labels if own]
        if "train" not in found:
            raise UserError(f"{where} lists no training image; add some")
        return labeled(found, None, where)


def labeled(
    found: Mapping[str, tuple[ImageSet, list[Any] | None]], names: tuple[str, ...] | None, where: str
) -> Splits:
    """Splits with labels, which are positions in the class names; of lists of labels, a matrix (N, K) of 0 and 1.

    The sorted values of all splits are the classes. Integers are positions in the `names` of the metadata, which may
    have many more. A split in which every label is missing or −1 has no labels.
    """
    for split, (images, _) in found.items():
        if not len(images):
            raise UserError(f"the {split} split has no image ({where})")
    sets = {split: [v if isinstance(v, list) else [v] for v in column or ()] for split, (_, column) in found.items()}
    sets = {split: rows for split, rows in sets.items() if any(row not in ([None], [HIDDEN]) for row in rows)}
    is_matrix = any(isinstance(v, list) for split in sets for v in found[split][1] or ())
    different = {value for rows in sets.values() for row in rows for value in row}
    if not any(all(isinstance(value, kind) for value in different) for kind in (int, str)):
        raise UserError(
            f"{where} must hold an integer in every row, or a string in every row; choose another label column"
        )
    position = {value: number for number, value in enumerate(sorted(different))}
    class_names = tuple(map(str, position))
    if names is not None and not any(isinstance(value, str) for value in different):
        outside = [value for value in position if not 0 <= value < len(names)]
        if outside:
            raise UserError(f"label {outside[0]} in {where} is outside its {len(names)} class names; drop those rows")
        class_names = tuple(names[value] for value in position)
    parts = {split: images for split, (images, _) in found.items()}
    for split, rows in sets.items():
        labels = torch.tensor([position[value] for row in rows for value in row])
        if is_matrix:
            row_of_label = torch.arange(len(rows)).repeat_interleave(torch.tensor(list(map(len, rows))))
            labels, numbers = torch.zeros(len(rows), len(position)), labels.long()
            labels[row_of_label, numbers] = 1
        parts[split] = replace(parts[split], labels=labels)
    return Splits(**parts, class_names=class_names)  # type: ignore[arg-type]  # all are ImageSets


def visible_files(folder: Path, suffixes: tuple[str, ...] = IMAGE_SUFFIXES) -> list[str]:
    """Sorted paths of all files with one of these endings. Skips hidden files and folders.

    Follows links to folders, but not back into a folder above. Dead links are included; reading them fails.
    """
    return sorted(path for path in _walk(folder) if path.lower().endswith(suffixes))


def _walk(folder: Path | str, above: frozenset[str] = frozenset()) -> Iterator[str]:
    real = os.path.realpath(folder)
    above = above or frozenset(map(os.path.realpath, (*Path(folder).absolute().parents, *Path(real).parents)))
    if real in above:
        return
    with os.scandir(folder) as entries:
        visible = [entry for entry in entries if not entry.name.startswith(".")]
    for entry in visible:
        if os.path.isdir(entry.path):
            yield from _walk(entry.path, above | {real})
        elif (entry.is_symlink() and not os.path.exists(entry.path)) or entry.is_file():
            yield entry.path


def visible_folders(folder: Path) -> list[Path]:
    """The folders directly inside this one, sorted by name."""
    return sorted(path for path in folder.iterdir() if not path.name.startswith(".") and os.path.isdir(path))


def split_folders(folder: Path) -> dict[str, Path]:
    """The folders that are splits; empty if the top folders are classes."""
    tops = visible_folders(folder)
    parts = {SPLIT_OF[path.name.lower()]: path for path in reversed(tops) if path.name.lower() in SPLIT_OF}
    return parts if len(parts) == len(tops) or ("train" in parts and len(parts) > 1) else {}


def folder_rows(folder: Path) -> Rows:
    """All images below a folder, class after class. The classes are the top folders, or those in folders of splits."""
    split_of = {path.name: split for split, path in split_folders(folder).items()}
    start, depth = len(os.path.join(folder, "")), 2 if split_of else 1
    by_folder: dict[tuple[str, ...], list[str]] = {}
    for path in visible_files(folder):
        by_folder.setdefault(tuple(path[start:].split("/", depth)[:-1]), []).append(path)
    paths: list[str] = []
    labels: list[list[str]] = []
    splits: list[str] = []
    for above, inside in sorted(by_folder.items()):
        is_split = bool(above) and above[0] in split_of
        paths += inside
        labels += [list(map(path_as_text, above[1:] if is_split else above[:1]))] * len(inside)
        splits += [split_of[above[0]] if is_split else "" if split_of else "train"] * len(inside)
    return Rows(ImageSet(images=paths, names=list(map(path_as_text, paths))), labels, splits)


def folder_splits(folder: Path) -> Splits:
    """`folder/train/class/*` with `folder/test` or `folder/val` next to it, `folder/class/*`, or flat files.

    A class is named after its folder and contains everything below it. Flat files have no labels. `train` is a split,
    not a class of trains, if a test or validation folder is next to it or if it is the only folder.
    """
    parts, rows = split_folders(folder) or {"train": folder}, folder_rows(folder)
    if "train" not in parts:
        raise UserError(f"{str(folder)!r} has a {next(iter(parts.values())).name!r} folder but no 'train'; add it")
    classes: dict[str, set[str]] = {}
    for split, labels in zip(rows.splits, rows.labels, strict=True):
        classes.setdefault(split, set()).update(labels)
    for split, part in parts.items():
        if split not in classes:
            endings = ", ".join(IMAGE_SUFFIXES)
            raise UserError(f"{str(part)!r} holds no image; add files, or a folder per class ({endings})")
    if not classes["train"]:
        rows = rows._replace(labels=[[] for _ in rows.labels])
    else:
        for path in chain.from_iterable(map(visible_folders, parts.values())):
            if path_as_text(path.name) not in classes["train"]:
                raise UserError(
                    f"the class of folder {str(path)!r} has no training image; add some, or remove the folder"
                )
    return rows.to_splits(repr(str(folder)))


def path_as_text(path: str) -> str:
    """Tables and reports hold only text, so other bytes in a file name are written as \\xff."""
    return path if path.isascii() else os.fsencode(path).decode("utf-8", "backslashreplace")


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
            raise UserError(f"{str(table)!r} has no column {FILE_COLUMNS[0]}, separated from the others by a comma")
        if any(any(row.get(None, ())) for row in rows):
            raise UserError(f"{str(table)!r} has a row with more cells than names of columns; quote texts with commas")
        if label_column is None:
            columns = [name for name in LABEL_COLUMNS if name in names][:1]
        else:
            columns = [label_column] if label_column in names else [part.strip() for part in label_column.split(",")]
        for column in columns:
            check_known(f"label column of {str(table)!r}", column, names)
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
