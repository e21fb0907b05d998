"""Read a folder of image files."""

import os
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from contune.data.images import ImageSet, Rows, Splits
from contune.errors import UserError

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm", ".npy", ".dcm")
SPLIT_OF = {"train": "train", "training": "train", "test": "test", "testing": "test"}
SPLIT_OF |= dict.fromkeys(("val", "valid", "validation", "dev"), "val")
"""By the names of folders and the beginnings of parquet files."""


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
    parts = {SPLIT_OF[path.name.lower()]: path for path in tops if path.name.lower() in SPLIT_OF}
    return parts if len(parts) == len(tops) or ("train" in parts and len(parts) > 1) else {}


def folder_rows(folder: Path) -> Rows:
    """All images below a folder, class after class. The classes are the top folders, or those in folders of splits."""
    split_of = {path.name: split for split, path in split_folders(folder).items()}
    found: list[tuple[list[str], str, str]] = []
    for path in visible_files(folder):
        above = path.removeprefix(f"{folder}/").split("/")[:-1]
        if above and above[0] in split_of:
            found.append((above[1:2], path, split_of[above[0]]))
        else:
            found.append((above[:1], path, "" if split_of else "train"))
    found.sort()
    images = ImageSet(images=[path for _, path, _ in found], names=[path_as_text(path) for _, path, _ in found])
    return Rows(images, [list(map(path_as_text, label)) for label, _, _ in found], [split for _, _, split in found])


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
                raise UserError(f"class folder {str(path)!r} holds no training image; add some, or rename or remove it")
    return rows.to_splits(repr(str(folder)))


def path_as_text(path: str) -> str:
    """Tables and reports hold only text, so other bytes in a file name are written as \\xff."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")
