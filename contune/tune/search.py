"""A search by Optuna: TPE proposes k1 and k2, runs that fall behind are given up, several hosts may share it."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from contune.console import plural, say
from contune.data.sampler import mixed_seed
from contune.errors import UserError
from contune.tune.short_run import ShortRun, look_epochs
from contune.tune.study import (
    Asked,
    answering,
    begun_by,
    ended,
    median_seen,
    num_begun,
    num_elsewhere,
    open_study,
    owner_of,
    write_down,
)
from contune.tune.trial import Trial, Values, rounded, without_twins
from contune.tune.workshop import Workshop

if TYPE_CHECKING:
    import optuna

RANDOM_TRIALS = 6
"""Before TPE has seen as many it proposes at random."""
STREAM = 11
MOST_FAILURES = 2
"""Batches in a row of which every run failed; then it is not the values. A trial that failed is not tried again."""


@dataclass(frozen=True)
class Ranges:
    """What is searched: k1 on a logarithmic scale. The paper asks for 1 or more of both."""

    k1: tuple[float, ...] = (1.0, 20_000.0)
    k2: tuple[float, ...] = (1.0, 3.0)

    def __post_init__(self) -> None:
        for name, ends in {"k1": self.k1, "k2": self.k2}.items():
            if len(ends) != 2 or not 0 < ends[0] < ends[1] < float("inf"):
                shown = ",".join(f"{end:g}" for end in ends)
                raise UserError(f"--{name} {shown} is no range; give a low and a high number above 0, such as 100,5000")

    def hold(self, values: Values) -> bool:
        return self.k1[0] <= values.k1 <= self.k1[1] and self.k2[0] <= values.k2 <= self.k2[1]


def search(
    workshop: Workshop, *, name: str, storage: str | None, ranges: Ranges, num_trials: int, seed: int
) -> list[Trial]:
    """Adds trials until the study has `num_trials`, the recipe's own values and the paper's first; all of them."""
    workshop.folder.mkdir(parents=True, exist_ok=True)
    study = open_study(storage, workshop.folder, name)
    with answering(name):
        return _add_trials(study, workshop, ranges, num_trials, seed)


def _add_trials(study: "optuna.Study", workshop: Workshop, ranges: Ranges, num_trials: int, seed: int) -> list[Trial]:
    for values in without_twins([workshop.own, workshop.paper]):
        _enqueue(study, values, ranges)
    failures = 0
    while batch := _next(study, workshop, ranges, num_trials, seed):
        stop_below = median_seen(study, look_epochs(workshop.config.optim.epochs))
        work = {asked.values: ShortRun({} if asked.is_kept else stop_below) for asked in batch}
        trials = workshop.run([asked.values for asked in batch], work)
        for asked, trial in zip(batch, trials, strict=True):
            write_down(study, asked, trial)
        failures = failures + 1 if all(trial.error for trial in trials) else 0
        if failures == MOST_FAILURES:
            raise UserError(trials[0].error)
    elsewhere = num_elsewhere(study, owner_of(workshop.folder))
    if elsewhere:
        say(f"without {plural(elsewhere, 'trial')} of other hosts, not ended yet; the same command, later, has all")
    return [replace(trial, why=workshop.why(trial.values)) for trial in ended(study)]


def _enqueue(study: "optuna.Study", values: Values, ranges: Ranges) -> None:
    """Values outside of the ranges, such as k1 = 0, are tried too; TPE just does not learn from them."""
    if any(known.user_attrs.get("values") == list(values) for known in study.get_trials(deepcopy=False)):
        return
    params = values._asdict() if ranges.hold(values) else {}
    study.enqueue_trial(params, user_attrs={"values": list(values), "kept": True})


def _next(study: "optuna.Study", workshop: Workshop, ranges: Ranges, num_trials: int, seed: int) -> list[Asked]:
    """What was begun here and never ended, then new ones."""
    owner = owner_of(workshop.folder)
    left = begun_by(study, owner)
    if left:
        return left[: workshop.parallel]
    batch: list[Asked] = []
    while len(batch) < workshop.parallel and not workshop.is_over and num_begun(study) < num_trials:
        batch.append(_ask(study, owner, ranges, seed))
    return batch


def _ask(study: "optuna.Study", owner: str, ranges: Ranges, seed: int) -> Asked:
    import optuna

    trial = study.ask()
    # Seeded by its number, so that a study that was interrupted proposes what it would have proposed.
    study.sampler = optuna.samplers.TPESampler(
        seed=mixed_seed(seed, STREAM, trial.number) % 2**32, n_startup_trials=RANDOM_TRIALS, constant_liar=True
    )
    given: list[float] | None = trial.user_attrs.get("values")
    if given is None or ranges.hold(Values(*given)):
        low, high = ranges.k1
        k1 = trial.suggest_float("k1", low, high, log=True)
        low, high = ranges.k2
        k2 = trial.suggest_float("k2", low, high)
    values = rounded(k1, k2) if given is None else Values(*given)
    trial.set_user_attr("values", list(values))
    trial.set_user_attr("owner", owner)
    return Asked(trial, values)
