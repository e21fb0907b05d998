"""Checkpoints: written whole or not at all, the one before kept, read without running anything they contain."""

import pickle
from pathlib import Path
from typing import Any

import torch

from contune.errors import UserError

CHECKPOINT = "checkpoint.pt"
PREVIOUS = "checkpoint.previous.pt"


def save_checkpoint(folder: Path, state: dict[str, Any]) -> None:
    """Whatever moment the process dies at, one of the two files is complete."""
    part = folder / (CHECKPOINT + ".part")
    torch.save(state, part)
    current = folder / CHECKPOINT
    if current.exists():
        current.replace(folder / PREVIOUS)
    part.replace(current)


def load_checkpoint(folder: Path, device: torch.device) -> dict[str, Any] | None:
    """The newest checkpoint that can be read, or None where there is none."""
    damaged: list[str] = []
    for name in (CHECKPOINT, PREVIOUS):
        path = folder / name
        if not path.exists():
            continue
        try:
            state: dict[str, Any] = torch.load(path, map_location=device, weights_only=True)
            return state
        except (RuntimeError, EOFError, OSError, pickle.UnpicklingError):
            damaged.append(name)
    if damaged:
        raise UserError(f"{' and '.join(damaged)} in {folder} cannot be read; remove the folder to start over")
    return None
