"""What an experiment is, which of its runs exist, and how the missing ones are run.

An experiment is a list of rows. A row is a recipe with some settings changed, run once per seed. `read_results` finds
finished runs below any folder: run folders, and result files such as those in results/. `collect` matches them to rows
by their settings.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from contune.config import MACHINE_SETTINGS, Config
from contune.console import say
from contune.errors import UserError
from contune.eval.measures import PIXELS, TOP1, judged_by
from contune.files import check_new_folder, write_atomic
from contune.recipes import find_recipe
from contune.report import train_and_report
from contune.report.statistics import Spread, welch
from contune.settings import split_assignment
from contune.training.many import Job, run_many
from contune.training.monitors import COLLAPSED_RANK
from contune.training.setup import open_dataset

Result = dict[str, Any]
"""The content of a result.json."""
Runs = dict[int, list[Result]]
"""Finished runs of one setting, by seed."""
Results = Mapping[str, Runs]
"""All finished runs, by the fingerprint of their settings."""
PAPER = "paper"
"""Whose number a row of the paper's own tables is compared with."""
CROSS_ENTROPY, SUPCON, TCL = "Cross-entropy", "SupCon", "TCL"
ABOUT = "experiment.json"
"""In an experiment's folder: its name and the settings that were changed."""
PLACES = ("data.path", "data.classes")
"""Settings that say where the data is."""
TORCHS_NORM = ("graph", "eager")
"""Engines that use torch's kernels for batch norm on a GPU. The others use contune's, or those of the compiler."""


@dataclass(frozen=True, kw_only=True)
class PlanRow:
    """One line of a table: a recipe with some settings changed, run once per seed."""

    title: str
    recipe: str
    overrides: tuple[str, ...] = ()
    """KEY=VALUE that define the row. Nothing overrides them."""
    method: str = ""
    """In tables of methods by data sets or settings: the method,"""
    at: str = ""
    """and the data set, or the value of the setting."""
    pixels: bool = False
    """Show the accuracy of the raw pixels instead of the features; every run on small data measures both."""
    is_baseline: bool = False
    reported: Mapping[str, float] = field(default_factory=dict)
    """Top-1 % that others report, by whom."""

    def run_name(self, seed: int) -> str:
        """Of its run folder: `tcl-k1-4000-seed0`."""
        return re.sub("[^a-z0-9.]+", "-", f"{self.title} seed{seed}".lower().replace("ε", "eps"))

    def config(self, overrides: Iterable[str], seed: int) -> Config:
        config = find_recipe(self.recipe)()
        # A list of classes belongs to ImageNet-100, also in a table with several data sets.
        fitting = [text for text in overrides if config.data.name == "imagenet100" or _key(text) != "data.classes"]
        return config.override([*fitting, *self.overrides, f"run.seed={seed}"])

    def runs(self, results: Results, overrides: Iterable[str]) -> Runs:
        """The finished runs that have the settings of this row."""
        return results.get(setting_of(self.config(overrides, seed=0)), {})


def setting_of(config: Config) -> str:
    """Equal for runs that differ only in seed, places and machine. Batch norm is part of it."""
    norm = " torch's batch norm" if config.run.engine in TORCHS_NORM else ""
    return config.fingerprint("run.seed", *PLACES) + norm


def _key(assignment: str) -> str:
    return split_assignment(assignment)[0]


@dataclass(frozen=True, kw_only=True)
class Experiment:
    title: str
    summary: str
    """For the list of experiments."""
    rows: tuple[PlanRow, ...]
    layout: str = "methods"
    """The kind of table and figure: a key of `tables.TABLES` and `figures.FIGURES`."""
    name: str = ""
    overrides: tuple[str, ...] = ()
    """KEY=VALUE for all rows; what a row sets itself comes on top."""
    changes: tuple[str, ...] = ()
    """Those of them that the user gave and that results depend on."""
    num_seeds: int = 1
    notes: tuple[str, ...] = ()
    """Sentences under the table, after those made from the results."""
    measures: tuple[str, ...] = ()
    """Columns of the table `seeds`; empty: top-1 and kNN."""
    setting: str = "data"
    """What differs from place to place, in tables with two directions."""

    def changed(self, changes: Sequence[str]) -> "Experiment":
        """With the user's settings for all rows. The paper's numbers, which are for the original ones, are left out."""
        overrides, notes = (*self.overrides, *changes), list(self.notes)
        norms = [f"run.engine={name}" for name in TORCHS_NORM]
        computed = sorted(text for text in changes if text in norms or _key(text) not in (*MACHINE_SETTINGS, *PLACES))
        rows = [
            replace(row, reported={who: top1 for who, top1 in row.reported.items() if who != PAPER or not computed})
            for row in self.rows
        ]
        for key in map(_key, overrides):
            if key == "run.seed":
                raise UserError("run.seed would be the same for all runs; use --seeds 3, or --seeds 0,4")
            if all(key in map(_key, row.overrides) for row in rows):
                raise UserError(f"{key} is what the runs of this experiment differ in; leave it out")
        if computed:
            left_out = ", without the paper's numbers" if any(PAPER in row.reported for row in self.rows) else ""
            notes.append(f"Changed from the experiment's defaults: {' '.join(computed)}{left_out}.")
        return replace(self, rows=tuple(rows), overrides=overrides, changes=tuple(computed), notes=tuple(notes))

    @property
    def about(self) -> dict[str, Any]:
        """What its experiment.json says."""
        return {"experiment": self.name, "overrides": list(self.changes)}


# Outcomes: a row with the results of its runs.


@dataclass(frozen=True)
class Outcome:
    """A row with the results of its runs. Columns (`top1`, `linear`, `fast`, `knn`) are those of eval/measures.py."""

    row: PlanRow
    results: tuple[Result, ...] = ()
    """Of the finished runs, by seed."""
    failures: tuple[str, ...] = ()
    """Of the failed ones: seed and reason."""
    num_missing: int = 0

    @property
    def trained(self) -> tuple[Result, ...]:
        """The results of a row that is about features; raw pixels are not trained."""
        return () if self.row.pixels else self.results

    def scores(self, column: str = TOP1) -> list[dict[str, Any]]:
        """What was measured of each run, with its seed. Raw pixels are the same for every seed, and count once."""
        results = self.results[:1] if self.row.pixels else self.results
        prefix = PIXELS if self.row.pixels else ""
        found = [(result["seed"], judged_by(result, column, prefix=prefix)) for result in results]
        return [score | {"seed": seed} for seed, score in found if score is not None]

    def by_seed(self, column: str = TOP1, protocol: str | None = None) -> dict[int, float]:
        """Top-1 % of each seed: the mean of its runs, or of those with this protocol."""
        scores = [score for score in self.scores(column) if protocol in (None, score["protocol"])]
        seeds = dict.fromkeys(score["seed"] for score in scores)
        return {seed: mean(score["top1"] for score in scores if score["seed"] == seed) for seed in seeds}

    @property
    def num_seeds(self) -> int:
        return len(self.by_seed())

    def accuracy(self, column: str = TOP1) -> Spread | None:
        """Top-1 %, the mean over seeds with its interval."""
        values = [*self.by_seed(column).values()]
        return Spread.of(values) if values else None

    def difference(self, other: "Outcome", column: str = TOP1) -> Spread | None:
        """This row minus the other; None if one of them has no run, or if they do not share a protocol.

        If a measure had several protocols, the runs with one of them count, if these are of every seed. Paired if both
        have the same seeds. Otherwise with Welch's interval.
        """
        scores = [*self.scores(column), *other.scores(column)]
        mine, theirs = self.by_seed(column), other.by_seed(column)
        protocols = dict.fromkeys(score["protocol"] for score in scores)
        if len({score["name"] for score in scores}) == 1 < len(protocols):
            pairs = [(self.by_seed(column, each), other.by_seed(column, each)) for each in protocols]
            complete = [(a, b) for a, b in pairs if (a.keys(), b.keys()) == (mine.keys(), theirs.keys())]
            mine, theirs = complete[-1] if complete else ({}, {})
        if not mine or not theirs:
            return None
        if mine.keys() == theirs.keys():
            return Spread.of([top1 - theirs[seed] for seed, top1 in mine.items()])
        a, b = [*mine.values()], [*theirs.values()]
        return welch(a, b) if min(len(a), len(b)) > 1 else Spread(mean(a) - mean(b))

    def curve(self, key: str) -> tuple[np.ndarray, np.ndarray] | None:
        """Epochs and what training logged then, the mean over seeds; None if no run logged it."""
        kept = [result["curves"] for result in self.results if key in result.get("curves", {})]
        alike = [each[key] for each in kept if each["epoch"] == kept[0]["epoch"]]
        return (np.array(kept[0]["epoch"]), np.array(alike, dtype=float).mean(axis=0)) if kept else None

    def mean_logged(self, key: str) -> float | None:
        """The mean of a curve over training."""
        found = self.curve(key)
        return None if found is None else float(np.nanmean(found[1]))

    def collapsed(self) -> list[Result]:
        """Runs whose features ended in almost one direction."""
        return [r for r in self.trained if r.get("last_logged", {}).get("effective_rank", inf) < COLLAPSED_RANK]

    def remark(self) -> str:
        """What a reader of its numbers has to know, in a few words."""
        num = len(self.results) + len(self.failures) + self.num_missing
        counts = {"collapsed": len(self.collapsed()), "failed": len(self.failures), "not run yet": self.num_missing}
        words = [word if count == num else f"{count} of {num} {word}" for word, count in counts.items() if count]
        return ", ".join(words)

    def problems(self) -> list[str]:
        """Collapsed and failed runs, one sentence each."""
        ranks = [(result["seed"], result["last_logged"]["effective_rank"]) for result in self.collapsed()]
        collapsed = [f"seed {seed}: collapsed to an effective rank of {rank:.2f}." for seed, rank in ranks]
        return [f"{self.row.title}, {problem}" for problem in (*collapsed, *self.failures)]


def protocols_differ(outcomes: Iterable[Outcome]) -> bool:
    """Whether top-1 is by another protocol for some, such as the classifier of cross-entropy."""
    return len({score["protocol"] for each in outcomes for score in each.scores()}) > 1


def collect(
    experiment: Experiment,
    results: Results,
    *,
    seeds: Sequence[int] | None = None,
    errors: Mapping[str, str] | None = None,
) -> list[Outcome]:
    """The outcome of every row.

    seeds: those of the experiment; None: all that there are. errors: why runs failed, by the fingerprint of their
    settings.
    """
    outcomes = []
    for row in experiment.rows:
        runs = row.runs(results, experiment.overrides)
        wanted = sorted(runs) if seeds is None else seeds
        configs = {seed: row.config(experiment.overrides, seed) for seed in wanted if seed not in runs}
        reasons = {seed: (errors or {}).get(config.fingerprint()) for seed, config in configs.items()}
        failures = [f"seed {seed}: {reason.rstrip('.')}." for seed, reason in reasons.items() if reason]
        num_missing = len(reasons) - len(failures) if wanted else 1
        found = [result for seed in wanted for result in runs.get(seed, ())]
        outcomes.append(Outcome(row, tuple(found), tuple(failures), num_missing))
    return outcomes


def run_missing(
    experiment: Experiment, folder: Path, seeds: Sequence[int], results: Results, parallel: int | None
) -> tuple[Experiment, dict[str, str]]:
    """Runs what has not finished yet, seed by seed; returns `errors` of `collect`, and the experiment.

    Rows with the same settings share their runs. Rows without results whose data set is not on this disk are left out
    of the experiment. If there are no others, it is an error.
    """
    jobs, overrides = dict[str, Job](), experiment.overrides
    names = [row.config(overrides, 0).data.name for row in experiment.rows]
    known = list(zip(experiment.rows, names, (row.runs(results, overrides) for row in experiment.rows), strict=True))
    for seed in seeds:
        for row, _, runs in known:
            if seed not in runs:
                path, config = folder / row.run_name(seed), row.config(overrides, seed)
                jobs.setdefault(config.fingerprint(), Job(config, path, f"{row.title}, seed {seed}", train_and_report))
    absent: dict[str, str] = {}
    for name, settings in {job.config.data.name: job.config.data for job in jobs.values()}.items():
        try:
            open_dataset(settings)
        except UserError as error:
            absent[name] = str(error)
    shown = tuple(row for row, name, runs in known if runs or name not in absent)
    if not shown:
        raise UserError(next(iter(absent.values())))
    for reason in absent.values():
        say(f"left out: {reason}")
    claim_folder(folder, experiment)
    possible = [job for job in jobs.values() if job.config.data.name not in absent]
    done = zip(possible, run_many(possible, parallel), strict=True)
    errors = {job.config.fingerprint(): result["error"] for job, result in done if "error" in result}
    return replace(experiment, rows=shown), errors


# Result files: one JSON file per run, anywhere below a folder.


def read_results(*folders: Path) -> dict[str, Runs]:
    """All results below these folders: saved ones, one file per run, and those of run folders.

    Every finished run counts, except for a copy or a repeat with exactly the same accuracies.
    """
    found, seen = dict[str, Runs](), set[tuple[Any, ...]]()
    for path in (path for folder in folders for path in sorted(folder.rglob("*.json"))):
        try:
            content = json.loads(path.read_text())
            if {"config", "measures", "seed", "epochs"} <= content.keys():
                setting = setting_of(Config.from_dict(content["config"]))
                accuracies = sorted((score["name"], round(score["top1"], 3)) for score in content["measures"])
                run = (setting, content["seed"], *accuracies)
                if run not in seen:
                    found.setdefault(setting, {}).setdefault(content["seed"], []).append(content | {"file": str(path)})
                seen.add(run)
        except (ValueError, AttributeError, UserError):  # no result, or of settings that this version does not know
            continue
    return found


# The folder of an experiment: its file experiment.json, and the results that are saved to one.


def read_about(folder: Path) -> dict[str, Any] | None:
    """The experiment of a folder and its changed settings; None if the folder does not say."""
    path = folder / ABOUT
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None


def write_about(folder: Path, experiment: Experiment) -> None:
    write_atomic(folder / ABOUT, json.dumps(experiment.about, indent=2) + "\n")


def claim_folder(folder: Path, experiment: Experiment) -> None:
    """Say which experiment a folder holds, if it is new, empty or this experiment's own."""
    about = read_about(folder)
    if about is None:
        check_new_folder(folder)
    elif about != experiment.about:
        held = " ".join([about["experiment"], *about["overrides"]])
        raise UserError(f"{folder} holds the experiment {held}; use another --out")
    write_about(folder, experiment)


def save(experiment: Experiment, outcomes: Sequence[Outcome], folder: Path, source: Path) -> None:
    """Copies the results of the run folders in `source`, one file per run."""
    write_about(folder, experiment)
    found = {Path(result["file"]): result for outcome in outcomes for result in outcome.results}
    new = {path.parent.name: each for path, each in found.items() if path.resolve().is_relative_to(source.resolve())}
    for name, result in new.items():
        text = json.dumps({key: value for key, value in result.items() if key != "file"}, indent=1)
        # A curve on one line.
        text = re.sub(r"\[\n[-+0-9.,eEnul\s]+\]", lambda match: "[" + " ".join(match[0][1:-1].split()) + "]", text)
        write_atomic(folder / f"{name}.json", f"{text}\n")
    say(f"results  {folder}: {len(new)} new")
