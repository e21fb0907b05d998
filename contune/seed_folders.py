"""Folders that are no run themselves but hold runs side by side, as `contune train --seeds` and `experiment` make."""

import re
from pathlib import Path

_NAME = re.compile(r"(.+-)?seed(\d+)")


def seed_folder(folder: Path, seed: int) -> Path:
    return folder / f"seed{seed}"


def seed_folders(folder: Path) -> list[Path]:
    """Those that are there, by name and in the order of the seeds."""
    found = {(name[1] or "", int(name[2])): path for path in folder.glob("*/") if (name := _NAME.fullmatch(path.name))}
    return [found[key] for key in sorted(found)]


def one_of_them(folder: Path) -> str:
    """The way out for a person who names the folder where one run is meant; empty where it is no such folder."""
    inside = seed_folders(folder)
    return f"its runs are folders inside it, so name one of them, such as {inside[0]}" if inside else ""
