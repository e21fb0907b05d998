"""The files under a folder that a person would see there."""

import os
from collections.abc import Iterator
from pathlib import Path

Identity = tuple[int, int]
"""Device and inode: the same for a folder and every link to it."""


def visible_files(folder: Path, suffixes: tuple[str, ...]) -> list[str]:
    """Paths of all files with one of these endings, sorted, hidden ones and those in hidden folders left out.

    Links to folders are followed, except back into a folder that the walk is inside of.
    """
    return sorted(_matching(folder, suffixes))


def has_visible_file(folder: Path, suffixes: tuple[str, ...]) -> bool:
    return next(_matching(folder, suffixes), None) is not None


def visible_folders(folder: Path) -> list[Path]:
    """The folders right inside this one, sorted by name."""
    return sorted(Path(entry.path) for entry in os.scandir(folder) if _visible(entry) and entry.is_dir())


def _matching(folder: Path, suffixes: tuple[str, ...]) -> Iterator[str]:
    return (path for path in _walk(str(folder), _above(folder)) if path.lower().endswith(suffixes))


def _walk(folder: str, inside: frozenset[Identity]) -> Iterator[str]:
    identity = _identity(folder)
    if identity in inside:
        return
    with os.scandir(folder) as entries:
        visible = [entry for entry in entries if _visible(entry)]
    for entry in visible:
        if entry.is_dir():
            yield from _walk(entry.path, inside | {identity})
        elif entry.is_file():
            yield entry.path


def _above(folder: Path) -> frozenset[Identity]:
    return frozenset(map(_identity, (*folder.absolute().parents, *folder.resolve().parents)))


def _identity(folder: str | Path) -> Identity:
    stat = os.stat(folder)
    return stat.st_dev, stat.st_ino


def _visible(entry: os.DirEntry[str]) -> bool:
    return not entry.name.startswith(".")
