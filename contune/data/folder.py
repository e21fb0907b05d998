"""Read a folder of image files."""

import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path

import torch

from contune.data.images import ImageSet, Splits
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


def folder_splits(folder: Path) -> Splits:
    """`folder/train/class/*` with `folder/test` or `folder/val` next to it, `folder/class/*`, or flat files.

    A class is named after its folder and contains everything below it. Flat files have no labels. `train` is a split,
    not a class of trains, if a test or validation folder is next to it or if it is the only folder.
    """
    parts = split_folders(folder) or {"train": folder}
    if "train" not in parts:
        raise UserError(f"{str(folder)!r} has a {next(iter(parts.values())).name!r} folder but no 'train'; add it")
    by_class = {split: _by_class(part) for split, part in parts.items()}
    stray, train = by_class["train"].get(""), {name: paths for name, paths in by_class["train"].items() if name}
    class_names = list(train) if any(train.values()) else []
    if class_names and stray:
        raise UserError(f"{str(parts['train'])!r} holds class folders and images, such as {stray[0]!r}; move those")
    for name in class_names:
        if not train[name]:
            raise UserError(f"class folder {str(parts['train'] / name)!r} holds no image; fill it or remove it")
    sets: dict[str, ImageSet] = {}
    for split, files in by_class.items():
        paths = sorted(chain.from_iterable(files.values()))
        labeled = sorted(name for name, inside in files.items() if name and inside) if class_names else []
        for name in labeled:
            if name not in class_names:
                raise UserError(
                    f"{str(parts[split] / name)!r} has no training images; rename or remove it, or add some"
                )
        if not paths:
            endings = ", ".join(IMAGE_SUFFIXES)
            raise UserError(f"{str(parts[split])!r} holds no image; add files, or a folder per class ({endings})")
        sets[split] = image_set(files, class_names) if labeled else ImageSet(images=paths, names=paths)
    return Splits(**sets, class_names=tuple(map(path_as_text, class_names)))  # type: ignore[arg-type]  # all are ImageSets


def split_folders(folder: Path) -> dict[str, Path]:
    """The folders that are splits; empty if the top folders are classes."""
    tops = visible_folders(folder)
    parts = {SPLIT_OF[path.name.lower()]: path for path in tops if path.name.lower() in SPLIT_OF}
    return parts if len(parts) == len(tops) or ("train" in parts and len(parts) > 1) else {}


def _by_class(folder: Path) -> dict[str, list[str]]:
    """The images in each folder inside this one, and under "" those directly inside."""
    files: dict[str, list[str]] = {path.name: [] for path in visible_folders(folder)}
    for path in visible_files(folder):
        name, slash, _ = path.removeprefix(f"{folder}/").partition("/")
        files.setdefault(name if slash else "", []).append(path)
    return files


def image_set(files: Mapping[str, Sequence[str]], class_names: Sequence[str]) -> ImageSet:
    """The images of these classes, class after class."""
    paths = [path for name in class_names for path in files.get(name, ())]
    labels = [label for label, name in enumerate(class_names) for _ in files.get(name, ())]
    return ImageSet(images=paths, labels=torch.tensor(labels, dtype=torch.int64), names=paths)


def path_as_text(path: str) -> str:
    """Tables and reports hold only text, so other bytes in a file name are written as \\xff."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")
