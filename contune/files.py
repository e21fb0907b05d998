"""Output files: which paths may be written, atomic writes, and a lock that keeps a folder to one process."""

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from contune.errors import UserError

PART = ".part"
"""Suffix of a file while it is being written."""
_ENDS = 2**16
"""Bytes at the beginning and at the end of a file that tell what it is."""


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """A temporary path to write to, which replaces `path` once its content is on disk.

    Creates the folder. If writing fails, the previous file stays. A disk error becomes a UserError.
    """
    part = path.with_name(path.name + PART)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield part
        sync(part)
        part.replace(path)
    except OSError as error:
        raise unwritable(path, error) from error
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def write_atomic(path: Path, content: str) -> None:
    """Write a text file atomically."""
    with atomic_file(path) as part:
        part.write_text(content, encoding="utf-8", newline="\n")


def sync(path: Path) -> None:
    """Wait until the content of a file is on disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def unwritable(path: Path, error: OSError) -> UserError:
    """The error for a disk that refuses a write."""
    fix = "free some space, check the permissions, or choose another place with --out"
    return UserError(f"cannot write to {path.parent} ({path.name}): {error.strerror or error}; {fix}")


def expanded(path: str | Path) -> Path:
    """With the home folder in place of `~`; an unknown `~name` stays as it is. The path need not exist."""
    return Path(os.path.expanduser(path))


def check_new_folder(folder: Path) -> None:
    """A command may start in `folder` only if it is new or empty."""
    if folder.exists() and not (folder.is_dir() and all(file.suffix == PART for file in folder.iterdir())):
        raise UserError(f"{folder} is a file, or a folder that is not empty; choose another folder with --out")


def check_out(out: Path, images: str | Path, endings: Sequence[str]) -> None:
    """An output file has a right ending, and adds no parquet to the folder of the images."""
    if out.suffix.lower() not in endings or out.is_dir():
        raise UserError(f"--out {out} must be a file that ends in {' or '.join(endings)}")
    place = expanded(images)
    is_inside = place.is_dir() and Path(os.path.realpath(out)).is_relative_to(os.path.realpath(place))
    if is_inside and out.suffix.lower() == ".parquet":
        raise UserError(f"--out {out} would become part of the input {place}; choose a file outside of it")


def check_like(out: Path, *words: str) -> None:
    """A file may be replaced only by one of its kind, which has all these words."""
    if not out.exists():
        return
    with suppress(OSError), out.open("rb") as file:
        content = file.read(_ENDS)
        file.seek(max(0, out.stat().st_size - _ENDS))
        content += file.read()
        if all(word.encode() in content for word in words):
            return
    raise UserError(f"{out} exists and this command did not write it; remove it, or choose another file with --out")


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Create a folder to which only this process may write. Disks without locks are not protected."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise unwritable(folder, error) from error
    try:
        with suppress(OSError):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                fix = "wait for it, or choose another folder with --out"
                raise UserError(f"another process writes to {folder}; {fix}") from None
        yield
    finally:
        os.close(descriptor)  # releases the lock, as does the end of the process
