"""Whether a file may be written: never over the images that a command reads, nor among them, nor over others' files."""

import os
from collections.abc import Callable
from pathlib import Path

from contune.data.folder import IMAGE_SUFFIXES
from contune.errors import UserError

_READ_SUFFIXES = (*IMAGE_SUFFIXES, ".parquet")


def check_out(out: Path, *inputs: str | Path, ending: str | None = None) -> None:
    """`ending`: what the name has to end in."""
    if ending is not None and out.suffix.lower() != ending:
        raise UserError(f"--out {out} is written as {ending}; give a name that ends so")
    if out.is_dir():
        raise UserError(f"--out {out} is a folder; give a file")
    for place in (Path(name).expanduser() for name in inputs):
        if _same(out, place):
            raise UserError(f"--out {out} is what is read; give another file")
        if out.suffix.lower() in _READ_SUFFIXES and place.is_dir() and _inside(out, place):
            raise UserError(f"--out {out} would be one of the images in {place}; give a file outside of it")


def check_like(out: Path, is_like: Callable[[Path], bool]) -> None:
    """A file is written over its like, what we wrote earlier in the same form, and over nothing else."""
    if out.exists() and not _is_like(out, is_like):
        raise UserError(
            f"{out} is there already and is not what this command writes; remove it, or give another file with --out"
        )


def _is_like(out: Path, is_like: Callable[[Path], bool]) -> bool:
    try:
        return is_like(out)
    except UserError:
        raise
    except (OSError, ValueError, TypeError, RecursionError):  # what it stumbles over is something else
        return False


def _same(one: Path, other: Path) -> bool:
    return one.exists() and other.exists() and one.samefile(other)


def _inside(file: Path, folder: Path) -> bool:
    """By its name, or by where links lead."""
    by_name = Path(os.path.abspath(file)).is_relative_to(os.path.abspath(folder))
    return by_name or Path(os.path.realpath(file)).is_relative_to(os.path.realpath(folder))
