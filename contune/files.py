"""Files that are written whole or not at all, whatever moment the process or the machine dies at."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from contune.errors import UserError

PART = ".part"
"""How the name of a file ends while it is being written."""

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A path to write to, which takes the place of `path` once all of it is on the disk.

    What goes wrong with the disk is a UserError, and the file that was there before stays.
    """
    part = path.with_name(path.name + PART)
    try:
        yield part
        sync(part)
        part.replace(path)
        sync(path.parent)
    except OSError as error:
        raise unwritable(path, error) from error
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def write_whole(path: Path, content: str) -> None:
    with whole_file(path) as part:
        part.write_text(content, encoding="utf-8", newline="\n")


def check_unused(folder: Path, holds: str) -> None:
    """Whether a command may begin in this folder: a new one, or one with nothing in it. `holds`: what it might have."""
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file; give a folder with --out")
    if folder.exists() and any(file.suffix != PART for file in folder.iterdir()):
        raise UserError(f"{folder} is not empty and holds no {holds}; give another folder with --out")


def make_folder_of(path: Path) -> None:
    """For a file that is going to be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(path, error) from error


def sync(path: Path) -> None:
    """Waits until a file, or the names in a folder, are on the disk and not only on their way."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if not (
            path.is_dir() and error.errno in (errno.EINVAL, errno.ENOTSUP)
        ):  # some network disks have none for folders
            raise
    finally:
        os.close(descriptor)


def unwritable(path: Path, error: OSError) -> UserError:
    """The sentence for a disk that does not take what a run has to write."""
    if error.errno in _FULL:
        way_out = "make room there; what was written before is whole, and the same command goes on with it"
    else:
        way_out = "see that it can be written to, or give another folder with --out"
    return UserError(f"cannot write to {path.parent} ({path.name}): {error.strerror or error}; {way_out}")
