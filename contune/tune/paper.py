"""The paper's procedure for choosing k1 and k2, section 4.4, with its "otherwise" and "to see" made exact.

    with labels:
        run 4000 and 5000, k2 = 1; if neither is better than SupCon, 2000, 6000 and 8000 too
    without: k1 = 1
    fix the best of these k1; raise k2 in steps of 0.2 as long as the accuracy rises, and of 0.1 once it does not

The recipe's own values and SupCon are run with them, to compare.
"""

from contune.tune.trial import SUPCON_VALUES, Trial, Values, best, without_twins
from contune.tune.workshop import Workshop

FIRST_K1 = (4000.0, 5000.0)
OTHER_K1 = (2000.0, 6000.0, 8000.0)
STEP, HALF_STEP = 0.2, 0.1
HIGHEST_K2 = 3.0


def as_in_the_paper(workshop: Workshop, *, supervised: bool) -> list[Trial]:
    """All trials, in the order in which they were made."""
    k1s: tuple[float, ...] = FIRST_K1 if supervised else (1.0,)
    wanted = [workshop.own, SUPCON_VALUES, *(Values(k1, 1.0) for k1 in k1s), workshop.paper]
    trials = workshop.run(without_twins(wanted))
    if supervised and not workshop.is_over and not _better_than_supcon(trials):
        trials += workshop.run([Values(k1, 1.0) for k1 in OTHER_K1 if Values(k1, 1.0) != workshop.own])
        k1s += OTHER_K1
    return _raise_k2(workshop, trials, best(trial for trial in trials if trial.values.k1 in k1s))


def _better_than_supcon(trials: list[Trial]) -> bool:
    by_values = {trial.values: trial.accuracy or 0.0 for trial in trials}
    return max(by_values.get(Values(k1, 1.0), 0.0) for k1 in FIRST_K1) > by_values[SUPCON_VALUES]


def _raise_k2(workshop: Workshop, trials: list[Trial], top: Trial | None) -> list[Trial]:
    if top is None:
        return trials
    step = STEP
    while not workshop.is_over:
        k2 = round(top.values.k2 + step, 2)
        if k2 > HIGHEST_K2:
            break
        (trial,) = workshop.run([Values(top.values.k1, k2)])
        trials = [*trials, *([trial] if trial.values not in {known.values for known in trials} else [])]
        higher = best([top, trial])
        if higher is top and step == HALF_STEP:
            break
        step = HALF_STEP if higher is top else step
        top = higher or top
    return trials
