"""A search as a database keeps it: which values were asked for, by whom, and what became of them."""

import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from contune.errors import UserError
from contune.tune.trial import Trial, Values

if TYPE_CHECKING:
    import optuna

INSTALL = "the search needs Optuna; install it with `pip install contune[tune]`, or take --how paper or --how advise"
GIVE_A_DATABASE = "give a database as Optuna takes it, such as sqlite:///study.db or postgresql://user@host/name"
MOVE_IT = "move it away, the runs beside it are kept, or give another folder with --out"
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


def check_storage(storage: str | None, name: str) -> None:
    """Whether there can be a study: Optuna, and the database where one is named."""
    _need_optuna()
    if storage is not None:
        _create(storage, name, f"--storage {storage}", GIVE_A_DATABASE)


def open_study(storage: str | None, folder: Path, name: str) -> "optuna.Study":
    """Makes it or, where it is there, goes on with it; in the folder if no storage is named."""
    _need_optuna()
    if storage is not None:
        return _create(storage, name, f"--storage {storage}", GIVE_A_DATABASE)
    file = folder / "study.db"
    return _create(f"sqlite:///{file.resolve()}", name, str(file), MOVE_IT)


def _need_optuna() -> None:
    try:
        import optuna
    except ImportError:
        raise UserError(INSTALL) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)


def _create(url: str, name: str, place: str, way_out: str) -> "optuna.Study":
    import optuna
    from sqlalchemy.exc import SQLAlchemyError

    wrong = (SQLAlchemyError, optuna.exceptions.OptunaError, ImportError, ValueError, RuntimeError, OSError)
    try:
        return optuna.create_study(storage=url, study_name=name, direction="maximize", load_if_exists=True)
    except wrong as error:
        way_out = "install the driver of that database" if isinstance(error, ImportError) else way_out
        raise UserError(f"cannot open the study at {place}: {_reason(error)}; {way_out}") from None


@contextmanager
def answering(name: str) -> Iterator[None]:
    """While a study is used: a database that goes away, or that another process holds for too long, is a sentence."""
    from optuna.exceptions import StorageInternalError
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (SQLAlchemyError, StorageInternalError) as error:
        raise UserError(
            f"the database of the study {name} no longer answers: {_reason(error)}; once it does, the same command "
            "goes on with what was done"
        ) from None


def _reason(error: Exception) -> str:
    """Optuna's own words for what a database says are about other things."""
    return str(error.__cause__ or error).splitlines()[0]


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


def num_elsewhere(study: "optuna.Study", owner: str) -> int:
    """Trials that others have begun and not ended."""
    from optuna.trial import TrialState

    running = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
    return sum(trial.user_attrs.get("owner") != owner for trial in running)


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

    before = study.get_trials(deepcopy=False)[asked.trial.number].intermediate_values  # by a call that got no further
    for epoch in sorted(trial.seen.keys() - before.keys()):
        asked.trial.report(trial.seen[epoch], epoch)
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
