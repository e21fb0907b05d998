"""`contune tune`, from a config to a choice: the way that was asked for, in a folder that goes on where it was."""

import time
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from contune.config import Config
from contune.errors import UserError, unknown
from contune.methods.tcl import TCL
from contune.train.setup import broken_image_hint, open_dataset
from contune.tune.advise import Advice, advise
from contune.tune.folder import Order, TuneFolder
from contune.tune.moments import KeepingRun, read_moments
from contune.tune.paper import as_in_the_paper
from contune.tune.search import Ranges, search
from contune.tune.short_run import default_epochs
from contune.tune.study import check_storage
from contune.tune.trial import SUPCON_VALUES, Trial, best, without_twins
from contune.tune.workshop import Workshop, default_parallel

WAYS = ("search", "paper", "advise")
NUM_TRIALS = 16


@dataclass(frozen=True)
class Outcome:
    """What tuning came to."""

    trials: list[Trial]
    choice: Trial
    own: Trial | None
    """The recipe's own values; None where their run failed."""
    paper: Trial | None
    advice: Advice | None = None


@dataclass(frozen=True, kw_only=True)
class Budget:
    epochs: int | None = None
    """Of a short run; a fifth of the recipe's if None, 10 at least."""
    num_trials: int = NUM_TRIALS
    parallel: int | None = None
    minutes: float | None = None

    def __post_init__(self) -> None:
        limits = {"epochs": self.epochs, "trials": self.num_trials, "parallel": self.parallel, "minutes": self.minutes}
        for name, value in limits.items():
            if value is not None and not value > 0:
                raise UserError(f"--{name} {value:g} is nothing to tune with; give a number above 0")


def default_way() -> str:
    return "search" if find_spec("optuna") is not None else "paper"


@broken_image_hint()
def tune(
    config: Config,
    folder: Path,
    *,
    how: str,
    budget: Budget,
    ranges: Ranges | None = None,
    storage: str | None = None,
) -> Outcome:
    """Trials by the way `how`. The recipe's own values and the paper's are tried too: the choice is not below them."""
    if how not in WAYS:
        raise unknown("way to tune", how, WAYS)
    _check(config, budget)
    order, place = Order(how, config, budget.epochs), TuneFolder(folder)
    short = order.short
    name = f"{short.data.name}-{short.fingerprint()}"
    place.check(order)
    open_dataset(short.data)  # has a sentence for what is not there, before any run is started
    if how == "search":
        check_storage(storage, name)
    place.open(order)
    workshop = Workshop(
        config=short,
        folder=folder,
        parallel=budget.parallel or default_parallel(config.run.device),
        until=time.monotonic() + 60 * budget.minutes if budget.minutes is not None else float("inf"),
    )
    settings: Any = short.method.settings
    advice = None
    if how == "paper":
        trials = as_in_the_paper(workshop, supervised=settings.supervised)
    elif how == "advise":
        trials, advice = _advised(workshop, settings.temperature)
    else:
        trials = search(
            workshop,
            name=name,
            storage=storage,
            ranges=ranges or Ranges(),
            num_trials=budget.num_trials,
            seed=short.run.seed,
        )
    return _outcome(workshop, trials, advice)


def _check(config: Config, budget: Budget) -> None:
    if not isinstance(config.method.settings, TCL.Settings):
        raise UserError(f"k1 and k2 belong to tcl, and the method is {config.method.name}; add method.name=tcl")
    if not (budget.epochs or default_epochs(config.optim.epochs)):
        raise UserError("optim.epochs=0 trains nothing, so k1 and k2 make no difference; give --epochs 10")


def _advised(workshop: Workshop, temperature: float) -> tuple[list[Trial], Advice]:
    workshop.config.run.gradients = True
    reference = workshop.run([SUPCON_VALUES], {SUPCON_VALUES: KeepingRun()})
    advice = advise(read_moments(workshop.run_folder(SUPCON_VALUES)), temperature)
    if workshop.is_over:
        raise UserError(
            f"the time was over before k1 and k2 could be compared; the run of SupCon advises {advice.values}; give "
            "more --minutes, and the same command goes on from there"
        )
    compared = [v for v in without_twins([advice.values, workshop.own, workshop.paper]) if v != SUPCON_VALUES]
    return reference + workshop.run(compared), advice


def _outcome(workshop: Workshop, trials: list[Trial], advice: Advice | None) -> Outcome:
    choice = best(trials)
    if choice is None:
        errors = [trial.error for trial in trials if trial.error]
        raise UserError(errors[0] if errors else "no trial came to its end in this time; give more --minutes")
    by_values = {trial.values: trial for trial in trials}
    if advice is not None and advice.values in by_values:
        trials = [
            replace(t, why=f"advised{', ' if t.why else ''}{t.why}") if t.values == advice.values else t for t in trials
        ]
        choice = best(trials) or choice
    return Outcome(trials, choice, by_values.get(workshop.own), by_values.get(workshop.paper), advice)
