"""A folder of image files → splits."""

from collections.abc import Sequence
from pathlib import Path

import torch

from contune.data.images import EncodedImages
from contune.data.imageset import ImageSet, Splits
from contune.data.walk import has_visible_file, visible_files, visible_folders
from contune.errors import UserError

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")

SPLIT_FOLDERS = {
    "train": ("train", "training"),
    "test": ("test", "testing"),
    "val": ("val", "valid", "validation"),
}


def folder_splits(folder: Path) -> Splits:
    """`folder/train/class/*` with `folder/test` or `folder/val` beside it, `folder/class/*`, or flat files.

    A class is a folder's name, and everything below it belongs to it, however deep. Flat files have no
    labels. `train` is taken for a split, and not for a class of trains, where a test or validation folder
    lies beside it or nothing else does.
    """
    _check_train_is_there(folder)
    parts = split_folders(folder)
    train_folder = parts.get("train", folder)
    class_names = class_folders(train_folder)
    train = read_classes(train_folder, class_names) if class_names else _read_flat(train_folder)
    return Splits(
        train=train,
        test=_read_held(parts["test"], class_names, train_folder) if "test" in parts else None,
        val=_read_held(parts["val"], class_names, train_folder) if "val" in parts else None,
        class_names=class_names,
    )


def class_folders(folder: Path) -> tuple[str, ...]:
    """The class names under a folder, sorted; none where its images lie flat."""
    flat = [path for path in folder.iterdir() if _is_image(path)]
    folders = visible_folders(folder)
    empty = [path for path in folders if not has_visible_file(path, IMAGE_SUFFIXES)]
    if len(empty) == len(folders):
        if not flat:
            raise UserError(
                f"{str(folder)!r} holds no image; put files there, or folders of them named after classes "
                f"({', '.join(IMAGE_SUFFIXES)})"
            )
        return ()
    if flat:
        raise UserError(
            f"{str(folder)!r} holds both class folders and images outside them, such as {flat[0].name!r}; "
            "move those into a class folder or away"
        )
    if empty:
        raise UserError(f"class folder {str(empty[0])!r} holds no image; fill it or remove it")
    return tuple(path.name for path in folders)


def read_classes(folder: Path, class_names: Sequence[str]) -> ImageSet:
    """The images of these class folders, class after class; a folder that is not there holds none."""
    paths: list[str] = []
    labels: list[int] = []
    for label, name in enumerate(class_names):
        inside = visible_files(folder / name, IMAGE_SUFFIXES) if (folder / name).is_dir() else []
        paths += inside
        labels += [label] * len(inside)
    return _image_set(paths, labels)


def _read_flat(folder: Path) -> ImageSet:
    return _image_set(visible_files(folder, IMAGE_SUFFIXES), None)


def _read_held(folder: Path, class_names: tuple[str, ...], train_folder: Path) -> ImageSet:
    own = {path.name for path in visible_folders(folder) if has_visible_file(path, IMAGE_SUFFIXES)}
    if not class_names or not own:
        held = _read_flat(folder)
    else:
        strangers = sorted(own - set(class_names))
        if strangers:
            raise UserError(
                f"class folder {str(folder / strangers[0])!r} has no counterpart in {str(train_folder)!r}; "
                "a held-out class needs training images, so rename or remove it"
            )
        held = read_classes(folder, class_names)
    if not len(held):
        raise UserError(f"{str(folder)!r} holds no image; fill it or remove it")
    return held


def split_folders(folder: Path) -> dict[str, Path]:
    """The folders that are splits by name; empty where the top folders are classes."""
    parts, num_others = _named_after_splits(folder)
    return parts if "train" in parts and (len(parts) > 1 or not num_others) else {}


def _check_train_is_there(folder: Path) -> None:
    parts, num_others = _named_after_splits(folder)
    if parts and "train" not in parts and not num_others:
        held = next(iter(parts.values())).name
        raise UserError(f"{str(folder)!r} has a {held!r} folder but no 'train' beside it; add one")


def _named_after_splits(folder: Path) -> tuple[dict[str, Path], int]:
    """By split, and how many other folders lie beside them."""
    tops = {path.name.lower(): path for path in visible_folders(folder)}
    parts = {part: tops[name] for part, names in SPLIT_FOLDERS.items() for name in reversed(names) if name in tops}
    return parts, len(tops) - len(parts)


def _image_set(paths: list[str], labels: list[int] | None) -> ImageSet:
    return ImageSet(
        images=EncodedImages(paths, paths),
        labels=None if labels is None else torch.tensor(labels, dtype=torch.int64),
        names=paths,
    )


def _is_image(path: Path) -> bool:
    looks_like_one = path.name.lower().endswith(IMAGE_SUFFIXES) and not path.name.startswith(".")
    return looks_like_one and (path.is_file() or (path.is_symlink() and not path.exists()))
