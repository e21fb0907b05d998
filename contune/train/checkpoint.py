"""Checkpoints: written atomically, the previous one kept, read without running anything they contain.

A checkpoint is a file of torch's, which is a zip archive. The checksums of the archive tell a complete file from a
damaged one.
"""

import io
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import torch

from contune.console import say
from contune.errors import UserError
from contune.files import atomic_file, sync

CHECKPOINT = "checkpoint.pt"
PREVIOUS = "checkpoint.previous.pt"


def save_checkpoint(folder: Path, state: dict[str, Any]) -> None:
    """Whenever the process dies, one of the two files is complete."""
    current = folder / CHECKPOINT
    content = io.BytesIO()  # torch itself would hide the reason why a disk refuses to write
    torch.save(state, content)
    with atomic_file(current) as part:
        part.write_bytes(content.getbuffer())
        if current.exists():
            sync(part)  # before the rename: a moment later it is the only new one
            current.replace(folder / PREVIOUS)


def load_checkpoint(folder: Path, device: torch.device) -> dict[str, Any] | None:
    """The newest complete checkpoint, or None if the folder has none. Says so if the newest file is damaged."""
    damaged: list[str] = []
    for name in (CHECKPOINT, PREVIOUS):
        path = folder / name
        if not path.exists():
            continue
        state = read_checkpoint(path, device)
        if state is not None:
            if damaged:
                say(f"{damaged[0]} in {folder} is damaged; resuming from the previous one, at step {state['step']}")
            return state
        damaged.append(name)
    if damaged:
        raise UserError(f"{' and '.join(damaged)} in {folder} cannot be read; remove the folder to start over")
    return None


def read_checkpoint(path: Path, device: torch.device) -> dict[str, Any] | None:
    """The content of a complete checkpoint; None for a damaged file or one that is no checkpoint."""
    try:
        with ZipFile(path) as archive:
            if archive.testzip() is not None:
                return None
        state = torch.load(path, map_location=device, weights_only=True)
    except torch.OutOfMemoryError:
        raise
    except Exception:  # a malformed file makes zipfile and torch raise nearly anything
        return None
    return state if isinstance(state, dict) and "step" in state else None
