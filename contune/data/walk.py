"""The files under a folder that a person would see there."""

import os
from collections.abc import Iterator
from pathlib import Path

Identity = tuple[int, int]
"""Device and inode: the same for a folder and every link to it."""


def visible_files(folder: Path, suffixes: tuple[str, ...]) -> list[str]:
    """Paths of all files with one of these endings, sorted, hidden ones and those in hidden folders left out.

    Links to folders are followed, except back into a folder that the walk is inside of. Links that lead nowhere are
    among the files: whoever reads them says so.
    """
    return sorted(_matching(folder, suffixes))


def circular_links(folder: Path) -> list[str]:
    """The links back into a folder above them, which the walk leaves alone."""
    links: list[str] = []
    for _ in _walk(str(folder), _above(folder), links):
        pass
    return sorted(links)


def has_visible_file(folder: Path, suffixes: tuple[str, ...]) -> bool:
    return next(_matching(folder, suffixes), None) is not None


def visible_folders(folder: Path) -> list[Path]:
    """The folders right inside this one, sorted by name."""
    return sorted(Path(entry.path) for entry in os.scandir(folder) if _visible(entry) and _is_dir(entry))


def _matching(folder: Path, suffixes: tuple[str, ...]) -> Iterator[str]:
    return (path for path in _walk(str(folder), _above(folder)) if path.lower().endswith(suffixes))


def _walk(folder: str, inside: frozenset[Identity], circular: list[str] | None = None) -> Iterator[str]:
    identity = _identity(folder)
    if identity in inside:
        if circular is not None:
            circular.append(folder)
        return
    with os.scandir(folder) as entries:
        visible = [entry for entry in entries if _visible(entry)]
    for entry in visible:
        if _is_dir(entry):
            yield from _walk(entry.path, inside | {identity}, circular)
        elif _leads_nowhere(entry) or entry.is_file():
            yield entry.path


def _is_dir(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False


def _leads_nowhere(entry: os.DirEntry[str]) -> bool:
    return entry.is_symlink() and not os.path.exists(entry.path)


def _above(folder: Path) -> frozenset[Identity]:
    return frozenset(map(_identity, (*folder.absolute().parents, *folder.resolve().parents)))


def _identity(folder: str | Path) -> Identity:
    stat = os.stat(folder)
    return stat.st_dev, stat.st_ino


def _visible(entry: os.DirEntry[str]) -> bool:
    return not entry.name.startswith(".")
