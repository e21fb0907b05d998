"""Read a folder of image files."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from contune.data.images import ImageSet, Splits
from contune.errors import UserError

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm", ".npy", ".dcm")
SPLIT_NAMES = {
    "train": ("train", "training"),
    "test": ("test", "testing"),
    "val": ("val", "valid", "validation", "dev"),
}
"""Names of folders and beginnings of parquet files."""


def visible_files(folder: Path, suffixes: tuple[str, ...]) -> list[str]:
    """Sorted paths of all files with one of these endings. Skips hidden files and folders.

    Follows links to folders, but not back into a folder above. Dead links are included; reading them fails.
    """
    return sorted(path for path in _walk(folder) if path.lower().endswith(suffixes))


def holds_images(folder: Path) -> bool:
    return folder.is_dir() and any(path.lower().endswith(IMAGE_SUFFIXES) for path in _walk(folder))


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
    parts = split_folders(folder)
    if parts and "train" not in parts:
        raise UserError(f"{str(folder)!r} has a {next(iter(parts.values())).name!r} folder but no 'train'; add it")
    train_folder = parts.get("train", folder)
    class_names = _class_folders(train_folder)
    held = {part: _read_held(parts[part], class_names, train_folder) for part in ("test", "val") if part in parts}
    return Splits(
        train=read_classes(train_folder, class_names) if class_names else _read_flat(train_folder),
        test=held.get("test"),
        val=held.get("val"),
        class_names=tuple(map(path_as_text, class_names)),
    )


def split_folders(folder: Path) -> dict[str, Path]:
    """The folders that are splits; empty if the top folders are classes."""
    tops = {path.name.lower(): path for path in visible_folders(folder)}
    parts = {part: tops[name] for part, names in SPLIT_NAMES.items() for name in reversed(names) if name in tops}
    return parts if len(parts) == len(tops) or ("train" in parts and len(parts) > 1) else {}


def read_classes(folder: Path, class_names: Sequence[str]) -> ImageSet:
    """The images of these class folders, class after class. A folder may be missing."""
    paths: list[str] = []
    labels: list[int] = []
    for label, name in enumerate(class_names):
        inside = visible_files(folder / name, IMAGE_SUFFIXES) if (folder / name).is_dir() else []
        paths += inside
        labels += [label] * len(inside)
    return ImageSet(images=paths, labels=torch.tensor(labels, dtype=torch.int64), names=paths)


def _read_flat(folder: Path) -> ImageSet:
    paths = visible_files(folder, IMAGE_SUFFIXES)
    if not paths:
        endings = ", ".join(IMAGE_SUFFIXES)
        raise UserError(f"{str(folder)!r} holds no image; add files, or a folder of them per class ({endings})")
    return ImageSet(images=paths, names=paths)


def path_as_text(path: str) -> str:
    """Tables and reports hold only text, so other bytes in a file name are written as \\xff."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _class_folders(folder: Path) -> tuple[str, ...]:
    """The sorted class names under a folder; none if its images are flat."""
    folders = visible_folders(folder)
    empty = [path for path in folders if not holds_images(path)]
    if len(empty) == len(folders):
        return ()
    is_image = (path for path in folder.iterdir() if path.name.lower().endswith(IMAGE_SUFFIXES) and not path.is_dir())
    stray = next((path.name for path in is_image if not path.name.startswith(".")), None)
    if stray is not None:
        raise UserError(f"{str(folder)!r} holds both class folders and images, such as {stray!r}; move those images")
    if empty:
        raise UserError(f"class folder {str(empty[0])!r} holds no image; fill it or remove it")
    return tuple(path.name for path in folders)


def _read_held(folder: Path, class_names: tuple[str, ...], train_folder: Path) -> ImageSet:
    own = [path.name for path in visible_folders(folder) if holds_images(path)]
    if not class_names or not own:
        return _read_flat(folder)
    strangers = sorted(set(own) - set(class_names))
    if strangers:
        raise UserError(
            f"class folder {str(folder / strangers[0])!r} has no counterpart in {str(train_folder)!r}; "
            "rename or remove it, or add training images"
        )
    return read_classes(folder, class_names)
