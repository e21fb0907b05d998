"""Checkpoints: written whole or not at all, the one before kept, read without running anything they contain.

A checkpoint is a file of torch's with a line at its end that has the SHA-256 of all before it. `torch.load` reads it as
any other and knows nothing of that line; here it is what tells a whole file from a damaged one.
"""

import hashlib
import hmac
from pathlib import Path
from typing import Any, BinaryIO

import torch

from contune.console import say
from contune.errors import UserError
from contune.files import sync, whole_file

CHECKPOINT = "checkpoint.pt"
PREVIOUS = "checkpoint.previous.pt"

_SEAL = b"\ncontune-sha256 "
_SEAL_LENGTH = len(_SEAL) + 64 + 1
_CHUNK = 1 << 22


def save_checkpoint(folder: Path, state: dict[str, Any]) -> None:
    """Whatever moment the process dies at, one of the two files is complete."""
    current = folder / CHECKPOINT
    with whole_file(current) as part:
        with part.open("wb") as file:
            sealed = _Sealed(file)
            torch.save(state, sealed)  # type: ignore[arg-type]  # it asks for no more than this
            sealed.close()
        if current.exists():
            sync(part)  # before the rename: a moment later it is the only new one
            current.replace(folder / PREVIOUS)


def load_checkpoint(folder: Path, device: torch.device) -> dict[str, Any] | None:
    """The newest checkpoint that is whole, or None where there is none. Says so where it is not the newest of all."""
    damaged: list[str] = []
    for name in (CHECKPOINT, PREVIOUS):
        path = folder / name
        if not path.exists():
            continue
        state = read_checkpoint(path, device)
        if state is not None:
            if damaged:
                say(f"{damaged[0]} in {folder} is damaged; going on from the one before it, at step {state['step']}")
            return state
        damaged.append(name)
    if damaged:
        raise UserError(f"{' and '.join(damaged)} in {folder} cannot be read; remove the folder to start over")
    return None


def read_checkpoint(path: Path, device: torch.device) -> dict[str, Any] | None:
    """What a whole checkpoint holds; None of a damaged one, or of one that is none."""
    try:
        if not _is_sealed(path):
            return None
        state = torch.load(path, map_location=device, weights_only=True)
    except torch.OutOfMemoryError:
        raise
    except Exception:  # a file that somebody made up, and sealed, makes torch raise nearly anything
        return None
    return state if isinstance(state, dict) and "step" in state else None


class _Sealed:
    """A file that torch writes to, from beginning to end, and the hash of what it wrote.

    An error of the disk is kept for `close`: torch would make another of it, without the reason.
    """

    def __init__(self, file: BinaryIO) -> None:
        self.file, self.hash = file, hashlib.sha256()
        self.error: OSError | None = None

    def write(self, content: bytes) -> int:
        self.hash.update(content)
        try:
            if self.error is None:
                self.file.write(content)
        except OSError as error:
            self.error = error
        return len(content)

    def flush(self) -> None:
        """torch asks for it; `close` does it."""

    def close(self) -> None:
        self.write(_SEAL + self.hash.hexdigest().encode() + b"\n")
        if self.error is not None:
            raise self.error


def _is_sealed(path: Path) -> bool:
    length = path.stat().st_size - _SEAL_LENGTH
    if length < 0:
        return False
    hashed = hashlib.sha256()
    with path.open("rb") as file:
        while length and (chunk := file.read(min(_CHUNK, length))):
            hashed.update(chunk)
            length -= len(chunk)
        seal = file.read()
    return hmac.compare_digest(seal, _SEAL + hashed.hexdigest().encode() + b"\n")
