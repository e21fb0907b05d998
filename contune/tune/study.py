"""A search as a database keeps it: which values were asked for, by whom, and what became of them."""

import platform
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from contune.errors import UserError
from contune.tune.trial import Trial, Values

if TYPE_CHECKING:
    import optuna

INSTALL = "the search needs Optuna; install it with `pip install contune[tune]`, or take --how paper or --how advise"
FEWEST_TO_COMPARE = 4
"""Finished trials that it takes to give up another."""


class Asked(NamedTuple):
    """Values that this process is to try."""

    trial: "optuna.Trial"
    values: Values

    @property
    def is_kept(self) -> bool:
        """Whether it is run to its end however it goes, because the others are compared with it."""
        return bool(self.trial.user_attrs.get("kept"))


def database_in(folder: Path) -> str:
    return f"sqlite:///{(folder / 'study.db').resolve()}"


def open_study(url: str, name: str) -> "optuna.Study":
    """Makes it or, where it is there, goes on with it."""
    try:
        import optuna
        from sqlalchemy.exc import SQLAlchemyError
    except ImportError:
        raise UserError(INSTALL) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        return optuna.create_study(storage=url, study_name=name, direction="maximize", load_if_exists=True)
    except (SQLAlchemyError, ImportError, ValueError, OSError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(
            f"cannot open the study at --storage {url}: {reason}; give a database as Optuna takes it, "
            "such as sqlite:///study.db or postgresql://user@host/name"
        ) from None


def owner_of(folder: Path) -> str:
    """Who goes on with a trial that was begun and never ended."""
    return f"{platform.node()}:{folder.resolve()}"


def begun_by(study: "optuna.Study", owner: str) -> list[Asked]:
    """Trials that an earlier call left unfinished."""
    import optuna

    running = study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,))
    return [
        Asked(optuna.Trial(study, found._trial_id), Values(*found.user_attrs["values"]))
        for found in running
        if found.user_attrs.get("owner") == owner
    ]


def num_begun(study: "optuna.Study") -> int:
    """Trials that count: all but those that wait and those that failed."""
    from optuna.trial import TrialState

    states = (TrialState.RUNNING, TrialState.COMPLETE, TrialState.PRUNED)
    return len(study.get_trials(deepcopy=False, states=states))


def median_seen(study: "optuna.Study", epochs: list[int]) -> dict[int, float]:
    """What half of the finished trials had reached after these epochs; nothing while they are few."""
    from optuna.trial import TrialState

    finished = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    seen = {
        epoch: [t.intermediate_values[epoch] for t in finished if epoch in t.intermediate_values] for epoch in epochs
    }
    return {epoch: median(values) for epoch, values in seen.items() if len(values) >= FEWEST_TO_COMPARE}


def write_down(study: "optuna.Study", asked: Asked, trial: Trial) -> None:
    from optuna.trial import TrialState

    for epoch, knn in trial.seen.items():
        asked.trial.report(knn, epoch)
    for name in ("knn", "num_images", "stopped_at", "error"):
        asked.trial.set_user_attr(name, getattr(trial, name))
    if trial.accuracy is not None:
        study.tell(asked.trial, trial.accuracy)
    else:
        study.tell(asked.trial, state=TrialState.PRUNED if trial.stopped_at is not None else TrialState.FAIL)


def ended(study: "optuna.Study") -> list[Trial]:
    """All trials that came to an end, those of other hosts too, in the order in which they were begun."""
    return [
        _trial(found.values[0] if found.values else None, found.user_attrs, found.intermediate_values)
        for found in study.get_trials(deepcopy=False)
        if found.state.is_finished() and "knn" in found.user_attrs
    ]


def _trial(accuracy: float | None, noted: dict[str, Any], seen: dict[int, float]) -> Trial:
    pruned = noted["stopped_at"] is not None  # Optuna then gives it the last kNN for a value
    return Trial(
        values=Values(*noted["values"]),
        accuracy=None if pruned else accuracy,
        knn=noted["knn"],
        num_images=noted["num_images"],
        seen=seen,
        stopped_at=noted["stopped_at"],
        error=noted["error"],
    )
