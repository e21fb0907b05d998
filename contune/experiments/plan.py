"""What runs an experiment consists of: rows of a table, each a recipe with some settings changed, for every seed."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from contune.config import MACHINE_SETTINGS, Config
from contune.errors import UserError
from contune.recipes import find_recipe
from contune.report import train_and_report
from contune.settings import split_assignment
from contune.train.many import Job

ENCODER, PIXELS = "encoder", "pixels"
"""What a row shows the accuracy of."""
PAPER = "paper"
"""Whose numbers stand beside ours in the paper's own tables."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A number of a table with its seeds, and the runs behind it."""

    title: str
    recipe: str
    overrides: tuple[str, ...] = ()
    """KEY=VALUE that make this row what it is; nothing stands above them."""
    adapted: tuple[str, ...] = ()
    """KEY=VALUE that only go well with it, above those of a whole experiment; a person's take their place."""
    name: str = ""
    """Of its run folders; the recipe's if empty. Rows that share a name share their runs."""
    series: str = ""
    """In tables and figures of two directions, what it is a point of, such as a method;"""
    at: str = ""
    """and where it stands there: a data set, the value of a setting."""
    measured: str = ENCODER
    """`pixels`: instead of features, the images themselves, which every run on small data measures too."""
    is_baseline: bool = False
    """Whether it is what the others have to beat."""
    beside: Mapping[str, float] = field(default_factory=dict)
    """Top-1 % that others report for it, by who."""
    beside_half: Mapping[str, float] = field(default_factory=dict)
    """Half of the 95 % interval of those numbers, where they give one."""

    def folder(self, seed: int) -> str:
        return f"{self.name or self.recipe}-seed{seed}"

    def config(self, overrides: Iterable[str], seed: int) -> Config:
        config = find_recipe(self.recipe)()
        fitting = [text for text in overrides if _fits(text, config)]
        return config.override([*fitting, *self.adapted, *self.overrides, f"run.seed={seed}"])

    def yielding(self, given: Iterable[str]) -> "Row":
        """Without what a person's settings take the place of."""
        keys = _keys(given)
        return replace(self, adapted=tuple(text for text in self.adapted if split_assignment(text)[0] not in keys))

    def without_paper(self) -> "Row":
        """Without the number that stands beside it in the paper; those that say which settings they have stay."""
        others = {whose: number for whose, number in self.beside.items() if whose != PAPER}
        return replace(self, beside=others, beside_half={})

    def sets(self, key: str) -> bool:
        return key in _keys(self.overrides)

    def takes(self, override: str) -> bool:
        try:
            self.config([override], seed=0)
        except UserError:
            return False
        return True


def _fits(override: str, config: Config) -> bool:
    """A class list is for one data set of a table that has several."""
    return config.data.name == "imagenet100" or split_assignment(override)[0] != "data.classes"


def _keys(overrides: Iterable[str]) -> set[str]:
    return {split_assignment(text)[0] for text in overrides}


def point(
    series: str, at: str, recipe: str, *overrides: str, adapted: tuple[str, ...] = (), paper: float | None = None
) -> Row:
    """A row of a table with two directions."""
    name = f"{series}-{at}".lower()
    for character in " ,=":
        name = name.replace(character, "-")
    beside = {} if paper is None else {PAPER: paper}
    return Row(
        title=f"{series}, {at}", recipe=recipe, overrides=overrides, adapted=adapted, name=name, series=series, at=at,
        beside=beside,
    )  # fmt: skip


def check_overrides(rows: Sequence[Row], overrides: Sequence[str]) -> None:
    """Whether all rows take them; where only some do not, it is said which."""
    if any(split_assignment(text)[0] == "run.seed" for text in overrides):
        raise UserError("run.seed would be the same for all runs; say --seeds 3, or which: --seeds 0,4")
    for text in overrides:
        key = split_assignment(text)[0]
        takers = [row for row in rows if row.takes(text)]
        if takers and all(row.sets(key) for row in takers):
            raise UserError(f"{key} is what the runs of this experiment differ in, or goes with it; leave it out")
    refused: dict[str, UserError] = {}
    for row in rows:
        try:
            row.config(overrides, seed=0)
        except UserError as error:
            refused[row.title] = error
    for title, reason in refused.items():
        raise reason if len(refused) == len(rows) else UserError(f"{title}, a run of this experiment: {reason}")


def jobs(rows: Sequence[Row], overrides: Sequence[str], seeds: Sequence[int], folder: Path) -> list[Job]:
    """A run for each row and seed; seed by seed, so that a table has all its rows early."""
    found: dict[Path, Job] = {}
    for seed in seeds:
        for row in rows:
            title = f"{row.title}, seed {seed}"
            job = Job(row.config(overrides, seed), folder / row.folder(seed), title, train_and_report)
            found.setdefault(job.folder, job)
    return list(found.values())


def folder_name(experiment: str, overrides: Iterable[str]) -> str:
    """The experiment's, and where settings differ that change what is computed, what stands for them all."""
    different = sorted(meaningful(overrides))
    if not different:
        return experiment
    return f"{experiment}-{hashlib.sha256(' '.join(different).encode()).hexdigest()[:8]}"


def meaningful(overrides: Iterable[str]) -> list[str]:
    """Those that change what is computed, not where and how."""
    pairs = [split_assignment(text) for text in overrides]
    where = (*MACHINE_SETTINGS, "data.path", "data.classes")
    return [f"{key}={value}" for key, value in pairs if key not in where]
