"""The folders that `contune train --seeds` makes: a run for each seed, side by side in one that is no run itself."""

import re
from pathlib import Path

_NAME = re.compile(r"seed(\d+)")


def seed_folder(folder: Path, seed: int) -> Path:
    return folder / f"seed{seed}"


def seed_folders(folder: Path) -> list[Path]:
    """Those that are there, in the order of the seeds."""
    found = {int(name[1]): path for path in folder.glob("seed*/") if (name := _NAME.fullmatch(path.name))}
    return [found[seed] for seed in sorted(found)]


def one_of_them(folder: Path) -> str:
    """The way out for a person who names the folder where one run is meant; empty where it is no such folder."""
    inside = seed_folders(folder)
    return f"its runs are in folders by seed, so name one of them, such as {inside[0]}" if inside else ""
