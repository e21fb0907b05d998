"""`contune tune`: k1 and k2 of TCL, or the r of its automatic ones, from short runs on a validation split.

Automatic k1 and k2, the recipe's own values and the paper's defaults are always tried. Of values that the validation
split cannot tell apart, the simplest are chosen. The test split is never used.
"""

import json
import shlex
import time
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from math import inf, sqrt
from pathlib import Path
from typing import Any, NamedTuple

from contune.config import Config
from contune.console import plural, say
from contune.data.sampler import mixed_seed
from contune.device import available_cores, choose_device
from contune.errors import UserError, check_known
from contune.eval.measures import KNN, LINEAR, judged_by
from contune.files import check_new_folder, folder_lock, write_atomic
from contune.methods.tcl import TCL
from contune.report.statistics import wilson_interval
from contune.run import RunFolder
from contune.settings import as_text
from contune.training.log import CHECKPOINT, PREVIOUS
from contune.training.many import MOST_ON_A_GPU, Job, run_many
from contune.training.session import train
from contune.training.setup import open_dataset

WAYS = ("search", "paper")
SUMMARY = "tune.json"
"""The file in the folder of a tuning; its trials are run folders in trials/, each with its own settings."""
COLUMNS = ("", "k1", "k2", "r", "fast probe %", "kNN %", "")
NUM_VALIDATION = 100
"""Fewer validation images cannot decide: at 90 %, the standard error of 100 is 3 points."""


class Values(NamedTuple):
    k1: float | str
    k2: float | str
    """Numbers, or `auto`."""
    r: float | None = None
    """Of automatic ones."""

    @property
    def overrides(self) -> list[str]:
        return [f"method.{name}={as_text(value)}" for name, value in self._asdict().items() if value is not None]

    def __str__(self) -> str:
        return ", ".join(f"{name} {as_text(value)}" for name, value in self._asdict().items() if value is not None)


OWN, AUTO, PAPER, SUPCON = "the recipe's own", "automatic", "the paper's default", "SupCon"
AUTO_VALUES, SUPCON_VALUES = Values("auto", "auto", TCL.Settings().r), Values(0.0, 1.0)
PAPER_DEFAULTS = {True: Values(5000.0, 1.0), False: Values(1.0, 1.5)}
"""With labels (section 4.4) and without (appendix B.3)."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A short run."""

    values: Values
    why: str = ""
    """What else these values are: the recipe's own, automatic, the paper's default, SupCon."""
    linear_top1: float | None = None
    """Top-1 % (of several labels: mAP) of the fast probe on the validation split; None if the run did not finish."""
    knn_top1: float | None = None
    num_images: int = 1
    """Of the validation split."""
    error: str = ""


def rank(trial: Trial) -> tuple[float, ...]:
    """Higher is better: accuracy, then kNN."""
    return tuple(-1.0 if value is None else value for value in (trial.linear_top1, trial.knn_top1))


def simplicity(trial: Trial) -> tuple[float, ...]:
    """Lower is simpler: automatic, the recipe's own, the paper's; then the smaller k1 and the k2 nearer to 1.

    A larger k1 weakens the push from negatives, so it has to earn its place.
    """
    known = [name in trial.why for name in (AUTO, OWN, PAPER)]
    k1, k2 = (1.0 if isinstance(value, str) else value for value in trial.values[:2])
    return known.index(True) if any(known) else len(known), k1, abs(k2 - 1), *(-value for value in rank(trial))


def best(trials: Iterable[Trial]) -> Trial:
    """The simplest of those that are within one standard error of the highest.

    SupCon (k1 = 0) is a comparison; it is chosen only if the recipe itself has k1 = 0.
    """
    candidates = [trial for trial in trials if not trial.error and (trial.values.k1 != 0 or OWN in trial.why)]
    if not candidates:
        raise UserError("all trials but SupCon's failed, so there is nothing to choose; their messages are above")
    top = max(candidates, key=rank)
    top1, *_ = rank(top)
    noise = sqrt(top1 * max(0.0, 100 - top1) / top.num_images)
    return min((trial for trial in candidates if rank(trial)[0] >= top1 - noise), key=simplicity)


# Short runs: the recipe in fewer epochs, evaluated on a validation split.


def short_config(config: Config, epochs: int | None = None) -> Config:
    """The same run in fewer epochs [default: a fifth, at least 10], with training images held out for validation."""
    short = deepcopy(config)
    epochs = epochs or min(config.optim.epochs, max(10, config.optim.epochs // 5))
    if epochs == 0:
        raise UserError("optim.epochs=0 trains nothing, so k1 and k2 make no difference; add --epochs 10")
    short.optim.warmup_epochs = round(short.optim.warmup_epochs * epochs / max(1, short.optim.epochs), 3)
    short.optim.epochs = epochs
    short.data.val_fraction = short.data.val_fraction or 0.2
    short.eval.split, short.eval.linear = "val", "fast"
    short.run.report, short.run.loggers = False, ()
    return short.check()


def short_run(config: Config, folder: RunFolder) -> dict[str, Any]:
    """Trains and evaluates, in another process. Nothing resumes a finished run, so its checkpoints are removed."""
    result = train(config, folder)
    for name in (CHECKPOINT, PREVIOUS):
        (folder.path / name).unlink(missing_ok=True)
    return result


@dataclass(frozen=True, kw_only=True)
class Runner:
    """Turns values into trials, a few runs at a time. Finished runs in its folder are reused."""

    config: Config
    """Of a short run."""
    folder: Path
    parallel: int
    known: Mapping[str, Values]
    """Values with a name: the recipe's own, automatic, the paper's default, SupCon."""
    until: float = inf
    """The time.monotonic() after which no trial is started, except for the first."""
    trials: dict[Values, Trial] = field(default_factory=dict)
    """All trials so far."""

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self.until

    @property
    def defaults(self) -> list[Values]:
        """What is always tried."""
        return list(dict.fromkeys(self.known[name] for name in (OWN, AUTO, PAPER)))

    def why(self, values: Values) -> str:
        return " and ".join(name for name, known in self.known.items() if known == values)

    def run(self, batch: Iterable[Values]) -> None:
        """Add a trial for each of these values. If all of the first ones fail, it is not the values: an error."""
        jobs = {}
        for values in batch:
            folder = self.folder / "trials" / str(values).replace(",", "").replace(" ", "-")
            jobs[values] = Job(deepcopy(self.config).override(values.overrides), folder, str(values), short_run)
        results = run_many(list(jobs.values()), self.parallel)
        if not self.trials and all("error" in result for result in results):
            raise UserError(results[0]["error"])
        for values, result in zip(jobs, results, strict=True):
            scores = [judged_by({"measures": (), **result}, column) or {} for column in (LINEAR, KNN)]
            trial = self.trials[values] = Trial(
                values=values,
                why=self.why(values),
                linear_top1=scores[0].get("top1"),
                knn_top1=scores[1].get("top1"),
                num_images=scores[0].get("num_images", 1),
                error=result.get("error", ""),
            )
            say(f"{values}: {trial.error or f'{trial.linear_top1:.2f} %, kNN {trial.knn_top1:.2f} %'}")


# --how paper

FIRST_K1 = (4000.0, 5000.0)
OTHER_K1 = (2000.0, 6000.0, 8000.0)
K2_STEPS, HIGHEST_K2 = (0.2, 0.1), 3.0


def paper_procedure(runner: Runner, *, supervised: bool) -> None:
    """Section 4.4, with its "otherwise" and "to see" made exact.

    With labels: run k1 = 4000 and 5000 at k2 = 1; if neither beats SupCon, also 2000, 6000 and 8000. Without: k1 = 1.
    Then fix the best k1 and raise k2 in steps of 0.2 while the accuracy rises, then in steps of 0.1.
    """
    trials, tried = runner.trials, [Values(k1, 1.0) for k1 in (FIRST_K1 if supervised else (1.0,))]
    runner.run([SUPCON_VALUES, *tried, *runner.defaults])
    supcon, *scores = (trials[values].linear_top1 or 0.0 for values in (SUPCON_VALUES, *tried))
    if supervised and not runner.is_over and max(scores) <= supcon:
        others = [Values(k1, 1.0) for k1 in OTHER_K1]
        runner.run([values for values in others if values not in trials])
        tried += others
    top = max((trials[values] for values in tried), key=rank)
    for step in K2_STEPS:
        while not runner.is_over and (k2 := round(float(top.values.k2) + step, 2)) <= HIGHEST_K2:
            higher = top.values._replace(k2=k2)
            runner.run([higher])
            if rank(trials[higher]) <= rank(top):
                break
            top = trials[higher]


# --how search

Ranges = Mapping[str, tuple[float, ...]]
"""The lowest and highest value of each parameter of a search: of k1 and k2, or of r."""
SEARCHED: Ranges = {"k1": (1.0, 20_000.0), "k2": (1.0, 3.0)}
"""k1 and r on a logarithmic scale."""
RANDOM_TRIALS = 6
"""Optuna's TPE proposes this many at random before it learns from results."""
STREAM = 11


def search(runner: Runner, ranges: Ranges, num_trials: int, seed: int) -> None:
    """So many trials, of the recipe's own values, automatic ones and the paper's first.

    A repeated search asks for the same values in the same order, and the runner reuses finished runs: it resumes.
    """
    try:
        import optuna
    except ImportError:
        raise UserError(
            "--how search needs Optuna: `pip install -e '.[tune]'` in the clone; or use --how paper"
        ) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.TPESampler(
        seed=mixed_seed(seed, STREAM) % 2**32, n_startup_trials=RANDOM_TRIALS, constant_liar=True
    )
    study = optuna.create_study(direction="maximize", sampler=sampler)
    scales: dict[str, Any] = {
        name: optuna.distributions.FloatDistribution(low, high, log=name != "k2")
        for name, (low, high) in ranges.items()
    }
    defaults = runner.defaults[:num_trials]
    for start in range(0, len(defaults), runner.parallel):
        if start == 0 or not runner.is_over:
            runner.run(defaults[start : start + runner.parallel])
    for trial in runner.trials.values():  # TPE learns from those within the ranges
        params = {name: getattr(trial.values, name) for name in ranges}
        fits = (isinstance(params[name], float) and low <= params[name] <= high for name, (low, high) in ranges.items())
        if trial.linear_top1 is not None and all(fits):
            known = optuna.trial.create_trial(params=params, distributions=scales, value=trial.linear_top1)
            study.add_trial(known)
    for start in range(len(runner.trials), num_trials, runner.parallel):
        if runner.is_over:
            break
        asked = [study.ask(scales) for _ in range(min(runner.parallel, num_trials - start))]
        # Rounded to what a person can read and type.
        rounded = [{name: float(f"{value:.3g}") for name, value in each.params.items()} for each in asked]
        batch = [(AUTO_VALUES if "r" in ranges else SUPCON_VALUES)._replace(**values) for values in rounded]
        runner.run(batch)
        for each, values in zip(asked, batch, strict=True):
            top1 = runner.trials[values].linear_top1
            study.tell(each, top1, state=optuna.trial.TrialState.FAIL if top1 is None else None)


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """The trials and the choice. `contune tune` prints `rows` and `lines`."""

    trials: list[Trial]
    choice: Trial
    command: str
    """Trains with the choice."""
    epochs: int

    def rows(self) -> list[tuple[str, ...]]:
        """The best first, those without an accuracy last."""
        rows = []
        for trial in sorted(self.trials, key=rank, reverse=True):
            mark = "→" if trial.values == self.choice.values else ""
            numbers = ["" if number is None else f"{number:.2f}" for number in (trial.linear_top1, trial.knn_top1)]
            values = ["" if value is None else as_text(value) for value in trial.values]
            rows.append((mark, *values, *numbers, ": ".join(filter(None, (trial.why, trial.error)))))
        return rows

    def lines(self) -> list[str]:
        """The choice, and how far apart two numbers have to be to mean something."""
        choice, top = self.choice, max(self.trials, key=rank)
        low, high = wilson_interval(choice.linear_top1 or 0.0, choice.num_images)
        images, epochs = plural(choice.num_images, "validation image"), plural(self.epochs, "epoch")
        lines = [
            f"chosen   {choice.values}: {choice.linear_top1:.2f} % on {images} after {epochs}",
            f"         95 % interval {low:.1f} to {high:.1f} %",
        ]
        if top.values not in (choice.values, SUPCON_VALUES):
            reached = f"{top.values} reached {top.linear_top1:.2f} %"
            lines.append(f"         {reached}, within one standard error: the simpler values are chosen")
        return [*lines, f"train    {self.command}"]


def tune(
    recipe: str,
    overrides: Sequence[str],
    config: Config,
    folder: Path,
    *,
    how: str,
    epochs: int | None = None,
    num_trials: int = 16,
    parallel: int | None = None,
    minutes: float | None = None,
    ranges: Ranges = SEARCHED,
) -> Tuned:
    """Tunes `config`, which is the recipe with these overrides, and writes tune.json into the folder.

    epochs: of a short run; None: a fifth of the recipe's, at least 10. The other options are those of `contune tune`.
    """
    check_known("way to tune", how, WAYS)
    for name, ends in ranges.items():
        if not (len(ends) == 2 and 0 < ends[0] < ends[1] < inf):
            raise UserError(f"--{name} needs a range: its lowest and highest value, above 0, such as 0.1,0.5")
    settings: Any = config.method.settings
    if not isinstance(settings, TCL.Settings):
        raise UserError(f"k1 and k2 belong to tcl, and the method is {config.method.name}; add method.name=tcl")
    short = short_config(config, epochs)
    if not (folder / "trials").exists():
        check_new_folder(folder)
    dataset = open_dataset(short.data)  # fails before any run is started if the data is not there
    if dataset.train.labels is None or dataset.val is None:
        raise UserError(f"{dataset.name} has no labels, and tuning needs them, also to tune without labels")
    if len(dataset.val) < NUM_VALIDATION:
        raise UserError(
            f"{plural(len(dataset.val), 'validation image')} cannot decide between settings, {NUM_VALIDATION} can; "
            "raise data.val_fraction, or use method.k1=auto method.k2=auto without tuning"
        )
    with folder_lock(folder):
        pass  # a folder that cannot be written fails here, not in every run
    if parallel is None:  # short runs are small: a thread for each does more than all threads for one
        on_gpu = choose_device(config.run.device).type == "cuda"
        parallel = MOST_ON_A_GPU if on_gpu else min(MOST_ON_A_GPU, available_cores())
    own = Values(settings.k1, settings.k2, settings.r if "auto" in (settings.k1, settings.k2) else None)
    known = {OWN: own, AUTO: AUTO_VALUES, PAPER: PAPER_DEFAULTS[settings.supervised], SUPCON: SUPCON_VALUES}
    until = inf if minutes is None else time.monotonic() + 60 * minutes
    runner = Runner(config=short, folder=folder, parallel=parallel, known=known, until=until)
    if how == "paper":
        paper_procedure(runner, supervised=settings.supervised)
    else:
        search(runner, ranges, num_trials, short.run.seed)
    trials = list(runner.trials.values())
    choice = best(trials)
    kept = [text for text in overrides if text.partition("=")[0].strip() not in ("method.k1", "method.k2", "method.r")]
    command = shlex.join(["contune", "train", recipe, *kept, *choice.values.overrides])
    about = {"how": how, "recipe": recipe, "overrides": list(overrides), "epochs": short.optim.epochs, "split": "val"}
    flat = [trial.values._asdict() | {k: v for k, v in asdict(trial).items() if k != "values"} for trial in trials]
    content = {**about, **flat[trials.index(choice)], "command": command, "trials": flat}
    write_atomic(folder / SUMMARY, json.dumps(content, indent=2) + "\n")
    return Tuned(trials=trials, choice=choice, command=command, epochs=short.optim.epochs)
