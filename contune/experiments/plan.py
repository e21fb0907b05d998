"""What runs an experiment consists of: rows of a table, each a recipe with some settings changed, for every seed."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from contune.config import MACHINE_SETTINGS, Config
from contune.errors import UserError
from contune.recipes import find_recipe
from contune.settings import split_assignment
from contune.train.many import Job

ENCODER, PIXELS = "encoder", "pixels"
"""What a row shows the accuracy of."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A line of a table, and the runs behind it."""

    title: str
    recipe: str
    overrides: tuple[str, ...] = ()
    """KEY=VALUE that belong to this row; they stand above those of a whole experiment."""
    name: str = ""
    """Of its run folders; the recipe's if empty. Rows that share a name share their runs."""
    measured: str = ENCODER
    """`pixels`: instead of features, the images themselves, which every run on small data measures too."""
    is_baseline: bool = False
    """Whether it is what the others have to beat."""
    beside: Mapping[str, float] = field(default_factory=dict)
    """Top-1 % that others report for it, by who."""

    def folder(self, seed: int) -> str:
        return f"{self.name or self.recipe}-seed{seed}"

    def config(self, overrides: Iterable[str], seed: int) -> Config:
        return find_recipe(self.recipe)().override([*overrides, *self.overrides, f"run.seed={seed}"])


def jobs(rows: Sequence[Row], overrides: Sequence[str], seeds: Sequence[int], folder: Path) -> list[Job]:
    """A run for each row and seed; seed by seed, so that a table has all its rows early."""
    if any(split_assignment(text)[0] == "run.seed" for text in overrides):
        raise UserError("run.seed would be the same for all runs; say --seeds 3, or which: --seeds 0,4")
    found: dict[Path, Job] = {}
    for seed in seeds:
        for row in rows:
            job = Job(row.config(overrides, seed), folder / row.folder(seed), f"{row.title}, seed {seed}")
            found.setdefault(job.folder, job)
    return list(found.values())


def folder_name(experiment: str, overrides: Iterable[str]) -> str:
    """The experiment's, and where settings differ that change what is computed, what stands for them all."""
    pairs = sorted(split_assignment(text) for text in overrides)
    meaning = [f"{key}={value}" for key, value in pairs if key not in (*MACHINE_SETTINGS, "data.path")]
    if not meaning:
        return experiment
    return f"{experiment}-{hashlib.sha256(' '.join(meaning).encode()).hexdigest()[:8]}"
