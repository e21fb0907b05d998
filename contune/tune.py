"""`contune tune`: k1 and k2 of TCL from short runs on a validation split, in one of three ways.

search: Optuna proposes values.
paper: the procedure of the paper's section 4.4.
advise: from the gradients of one short run of SupCon, without a search.

The recipe's own values and the paper's defaults are always tried, so the choice is never below them on the validation
split. The test split is never used.

Shapes: N embeddings of size D.
"""

import json
import platform
import shlex
import time
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from functools import partial
from math import exp, log
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any, NamedTuple

from safetensors.torch import load_file, save_file
from torch import Tensor

from contune.config import Config
from contune.console import plural, say
from contune.data.loader import Loader
from contune.data.sampler import mixed_seed
from contune.device import available_cores, choose_device
from contune.errors import UserError, unknown
from contune.files import atomic_file, check_new_folder, make_parent, write_atomic
from contune.losses.responses import responses
from contune.methods.base import Method
from contune.methods.tcl import TCL
from contune.report import wilson_interval
from contune.run import RunFolder
from contune.train.log import CHECKPOINT, PREVIOUS
from contune.train.many import MOST_ON_A_GPU, Job, run_many
from contune.train.session import train
from contune.train.setup import Setup, broken_image_hint, open_dataset
from contune.train.trainer import Trainer

if TYPE_CHECKING:
    import optuna

WAYS = ("search", "paper", "advise")
NUM_TRIALS = 16
SETTINGS, SUMMARY, PICTURE = "settings.json", "tune.json", "trials.png"
"""Files in the folder of a tuning; its trials are run folders in trials/."""
COLUMNS = ("", "k1", "k2", "linear %", "kNN %", "")


class Values(NamedTuple):
    k1: float
    k2: float

    @property
    def overrides(self) -> list[str]:
        return [f"method.k1={_plain(self.k1)}", f"method.k2={_plain(self.k2)}"]

    def __str__(self) -> str:
        return f"k1 {_plain(self.k1)}, k2 {_plain(self.k2)}"


OWN, PAPER, SUPCON = "the recipe's own", "the paper's default", "SupCon"
SUPCON_VALUES = Values(0.0, 1.0)
PAPER_DEFAULTS = {True: Values(5000.0, 1.0), False: Values(1.0, 1.5)}
"""With labels (section 4.4) and without (appendix B.3)."""


def _plain(number: float) -> str:
    """The shortest text that reads back as the same number."""
    return f"{number:g}" if float(f"{number:g}") == number else repr(number)


def _rounded(k1: float, k2: float) -> Values:
    """To what a person can read and type: three digits of k1, two decimals of k2."""
    return Values(float(f"{k1:.3g}"), round(k2, 2))


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A short run."""

    values: Values
    why: str = ""
    """What else these values are: the recipe's own, the paper's default, SupCon, advised."""
    linear_top1: float | None = None
    """Top-1 % of the fast linear probe on the validation split; None if the run did not finish."""
    knn_top1: float | None = None
    num_images: int | None = None
    """Of the validation split."""
    error: str = ""

    @property
    def remark(self) -> str:
        return ", ".join(filter(None, (self.why, self.error and f"failed: {self.error}")))


def rank(trial: Trial) -> tuple[float, ...]:
    """Higher is better: accuracy, then kNN, then the smaller k1, then the k2 nearer to 1.

    A larger k1 weakens the push from negatives, so it has to earn its place.
    """
    accuracy, knn = (-1.0 if value is None else value for value in (trial.linear_top1, trial.knn_top1))
    return accuracy, knn, -trial.values.k1, -abs(trial.values.k2 - 1)


def best(trials: Iterable[Trial]) -> Trial | None:
    """The highest by `rank`. SupCon (k1 = 0) is a comparison; it is chosen only if the recipe itself has k1 = 0."""
    candidates = [t for t in trials if t.linear_top1 is not None and (t.values.k1 > 0 or OWN in t.why)]
    return max(candidates, key=rank, default=None)


# Short runs: the recipe in fewer epochs, evaluated on a validation split.

NUM_SNAPSHOTS = 9


def default_epochs(epochs: int) -> int:
    """A fifth of the recipe's, at least 10."""
    return min(epochs, max(10, epochs // 5))


def short_config(config: Config, epochs: int) -> Config:
    """The same run in fewer epochs. If the data has no validation split, training images are held out."""
    short = deepcopy(config)
    if short.optim.epochs:
        short.optim.warmup_epochs = round(short.optim.warmup_epochs * epochs / short.optim.epochs, 3)
    short.optim.epochs = epochs
    short.data.val_fraction = short.data.val_fraction or 0.2
    short.eval.split, short.eval.linear = "val", "fast"
    short.run.report, short.run.tensorboard = False, False
    return short.check()


def short_run(config: Config, folder: RunFolder, make_trainer: type[Trainer] = Trainer) -> dict[str, Any]:
    """Trains and evaluates, in another process. Nothing resumes a finished run, so its checkpoints are removed."""
    result = train(config, folder, make_trainer)
    for name in (CHECKPOINT, PREVIOUS):
        (folder.path / name).unlink(missing_ok=True)
    return result


Snapshot = tuple[int, Tensor, Tensor]
"""A step, the embeddings (N, D) of its batch, all views stacked, and groups (N,), equal for positives of each other."""


class SnapshotTrainer(Trainer):
    """Saves the embeddings of a few steps, from the first to the last."""

    def __init__(self, setup: Setup, method: Method, loader: Loader, folder: RunFolder) -> None:
        super().__init__(setup, method, loader, folder)
        distance = max(self.num_steps - 1, 1) / (NUM_SNAPSHOTS - 1)
        self.snapshot_steps = {1 + round(number * distance) for number in range(NUM_SNAPSHOTS)}

    def take_step(self, images_BCHW: Tensor, labels_B: Tensor | None) -> dict[str, Tensor]:
        metrics = super().take_step(images_BCHW, labels_B)
        if self.step in self.snapshot_steps:
            z_ND, groups_N = (self.watch.state[name].cpu().contiguous() for name in ("z_ND", "groups_N"))
            with atomic_file(self.folder.path / f"moment-{self.step:08}.safetensors") as path:
                save_file({"z_ND": z_ND.float(), "groups_N": groups_N}, path)
        return metrics


def read_snapshots(folder: Path) -> list[Snapshot]:
    """In the order of the run."""
    paths = sorted(folder.glob("moment-*.safetensors"))
    files = [(int(path.stem.removeprefix("moment-")), load_file(path)) for path in paths]
    return [(step, file["z_ND"], file["groups_N"]) for step, file in files]


@dataclass(frozen=True, kw_only=True)
class Runner:
    """Turns values into trials, a few runs at a time. Finished runs in its folder are reused."""

    config: Config
    """Of a short run."""
    folder: Path
    parallel: int
    own: Values
    paper: Values
    """The recipe's values and the paper's default."""
    until: float = float("inf")
    """The time.monotonic() after which no trial is started."""

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self.until

    def why(self, values: Values) -> str:
        names = {OWN: self.own, PAPER: self.paper, SUPCON: SUPCON_VALUES}
        return " and ".join(name for name, known in names.items() if known == values)

    def run_folder(self, values: Values) -> Path:
        return self.folder / "trials" / str(values).replace(",", "").replace(" ", "-")

    def run(self, batch: Sequence[Values], work: Callable[..., dict[str, Any]] = short_run) -> list[Trial]:
        """A trial for each of these values. If nothing could be run here yet, the first error is raised."""
        unique = list(dict.fromkeys(batch))
        jobs = [Job(deepcopy(self.config).override(v.overrides), self.run_folder(v), str(v), work) for v in unique]
        trials = {}
        for values, result in zip(unique, run_many(jobs, self.parallel), strict=True):
            trial = trials[values] = Trial(
                values=values,
                why=self.why(values),
                linear_top1=result.get("linear_top1"),
                knn_top1=result.get("knn_top1"),
                num_images=result["measures"][0]["num_images"] if result.get("measures") else None,
                error=result.get("error", ""),
            )
            numbers = "" if trial.linear_top1 is None else f"{trial.linear_top1:.2f} %, kNN {trial.knn_top1:.2f} %"
            say(f"{values}: {'; '.join(filter(None, (numbers, trial.remark)))}")
        if all(trial.error for trial in trials.values()) and not any(self.folder.glob("trials/*/result.json")):
            raise UserError(trials[batch[0]].error)
        return [trials[values] for values in batch]


# --how paper

FIRST_K1 = (4000.0, 5000.0)
OTHER_K1 = (2000.0, 6000.0, 8000.0)
STEP, HALF_STEP = 0.2, 0.1
HIGHEST_K2 = 3.0


def paper_procedure(runner: Runner, *, supervised: bool) -> list[Trial]:
    """Section 4.4, with its "otherwise" and "to see" made exact; all trials in their order.

    With labels: run k1 = 4000 and 5000 at k2 = 1; if neither beats SupCon, also 2000, 6000 and 8000. Without: k1 = 1.
    Then fix the best k1 and raise k2 in steps of 0.2 while the accuracy rises, then in steps of 0.1.
    """
    k1s: tuple[float, ...] = FIRST_K1 if supervised else (1.0,)
    first = [runner.own, SUPCON_VALUES, *(Values(k1, 1.0) for k1 in k1s), runner.paper]
    trials = {trial.values: trial for trial in runner.run(first)}

    scores = {values: trial.linear_top1 or 0.0 for values, trial in trials.items()}
    beats_supcon = max(scores[Values(k1, 1.0)] for k1 in k1s) > scores[SUPCON_VALUES]
    if supervised and not runner.is_over and not beats_supcon:
        new = [Values(k1, 1.0) for k1 in OTHER_K1 if Values(k1, 1.0) not in trials]
        trials |= {trial.values: trial for trial in runner.run(new)}
        k1s += OTHER_K1
    top, step = best(trial for trial in trials.values() if trial.values.k1 in k1s), STEP
    while top is not None and not runner.is_over and (k2 := round(top.values.k2 + step, 2)) <= HIGHEST_K2:
        (trial,) = runner.run([Values(top.values.k1, k2)])
        trials.setdefault(trial.values, trial)
        higher = best([top, trial])
        if higher is top and step == HALF_STEP:
            break
        step = HALF_STEP if higher is top else step
        top = higher
    return list(trials.values())


# --how advise

PUSH_LEFT = 0.9
LOWEST_K1, HIGHEST_K1 = 1.0, 1e5
HALVINGS = 30


@dataclass(frozen=True)
class Advice:
    values: Values
    decisive_step: int
    """The step of the run at which a larger k1 would first weaken the negatives too much."""
    pull: float
    push: float
    """How strongly positives pull and negatives push at the end of the run, as multiples of SupCon's."""


def advise(snapshots: Sequence[Snapshot], temperature: float) -> Advice:
    """From snapshots of a run of SupCon, the first of them of the untrained network.

    Section 4.4 shows what k1 gives and takes: positives pull more strongly, and as k1's term fills the denominator D,
    negatives push less, by the factor D_SupCon / D. Accuracy falls when too little of the push is left. So:

        k1: the largest that leaves the negatives nine tenths of their push under SupCon at every snapshot
        k2: makes up for the rest in the second half of the run, so that negatives push as under SupCon

    The untrained network counts: its positives are far apart, so Σ_p exp(-s_ip) is largest, and k1's term soon
    outgrows Σ_n exp(s_in / τ). Everything is then drawn together first, which takes epochs to undo.
    """

    def largest_k1(snapshot: Snapshot) -> float:
        def is_allowed(log_k1: float) -> bool:
            return _against_supcon([snapshot], temperature, exp(log_k1), 1.0)[1] >= PUSH_LEFT

        return exp(_bisect(is_allowed, log(LOWEST_K1), log(HIGHEST_K1)))

    limits = list(map(largest_k1, snapshots))
    k1, learned = min(limits), snapshots[len(snapshots) // 2 :]
    k2 = _bisect(lambda k2: _against_supcon(learned, temperature, k1, k2)[1] < 1, 1.0, HIGHEST_K2)
    values = _rounded(k1, k2)
    pull, push = _against_supcon(snapshots[-1:], temperature, *values)
    return Advice(values, snapshots[limits.index(k1)][0], pull, push)


def _against_supcon(snapshots: Sequence[Snapshot], temperature: float, k1: float, k2: float) -> tuple[float, float]:
    """The mean gradient responses of positives and negatives, as multiples of SupCon's."""
    found = [
        responses(z_ND, groups_N, temperature=temperature, k1=k1, k2=k2, hard=None) for _, z_ND, groups_N in snapshots
    ]
    pull, push = (
        mean(float(each[name]) / max(float(each[f"supcon_{name}"]), 1e-30) for each in found)
        for name in ("positive_gradient", "negative_gradient")
    )
    return pull, push


def _bisect(holds: Callable[[float], bool], low: float, high: float) -> float:
    """The largest number in between for which `holds`, if it holds up to some number and not beyond; else an end."""
    if not holds(low):
        return low
    if holds(high):
        return high
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _advised(runner: Runner, temperature: float) -> tuple[list[Trial], Advice]:
    """A run of SupCon, its advice, and the trials that compare the advice with the defaults."""
    runner.config.run.gradients = True
    reference = runner.run([SUPCON_VALUES], partial(short_run, make_trainer=SnapshotTrainer))
    advice = advise(read_snapshots(runner.run_folder(SUPCON_VALUES)), temperature)
    if runner.is_over:
        raise UserError(f"no time was left to compare the advice, {advice.values}; repeat with more --minutes")
    compared = [v for v in dict.fromkeys([advice.values, runner.own, runner.paper]) if v != SUPCON_VALUES]
    trials = [*reference, *runner.run(compared)]
    named = [replace(t, why=f"advised, {t.why}".strip(", ")) if t.values == advice.values else t for t in trials]
    return named, advice


# --how search

RANDOM_TRIALS = 6
"""Optuna's TPE proposes this many at random before it learns from results."""
STREAM = 11


class Ranges(NamedTuple):
    """What is searched; k1 on a logarithmic scale."""

    k1: tuple[float, ...] = (1.0, 20_000.0)
    k2: tuple[float, ...] = (1.0, 3.0)

    def hold(self, values: Values) -> bool:
        return self.k1[0] <= values.k1 <= self.k1[1] and self.k2[0] <= values.k2 <= self.k2[1]


def open_study(url: str, name: str) -> "optuna.Study":
    """Creates the study, or loads it to resume."""
    try:
        import optuna
    except ImportError:
        raise UserError("--how search needs Optuna: `pip install contune[tune]`; or use --how paper") from None
    from sqlalchemy.exc import SQLAlchemyError

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    wrong = (SQLAlchemyError, optuna.exceptions.OptunaError, ImportError, ValueError, RuntimeError, OSError)
    try:
        return optuna.create_study(storage=url, study_name=name, direction="maximize", load_if_exists=True)
    except wrong as error:
        reason = str(error.__cause__ or error).splitlines()[0]
        raise UserError(f"cannot open the study at {url}: {reason}; use a URL such as sqlite:///s.db") from None


def search(study: "optuna.Study", runner: Runner, ranges: Ranges, num_trials: int, seed: int) -> list[Trial]:
    """Adds trials until the study has `num_trials`, the recipe's own values and the paper's first; returns all.

    Several hosts may share a study. Each trial has an owner, who resumes it after a stop.
    """
    import optuna
    from optuna.trial import TrialState

    def trials_in(*states: TrialState) -> "list[optuna.trial.FrozenTrial]":
        return study.get_trials(deepcopy=False, states=states or None)

    owner = f"{platform.node()}:{runner.folder.resolve()}"
    for values in dict.fromkeys([runner.own, runner.paper]):
        if all(known.user_attrs.get("values") != list(values) for known in trials_in()):
            # Values outside of the ranges, such as k1 = 0, are tried too; TPE does not learn from them.
            params = values._asdict() if ranges.hold(values) else {}
            study.enqueue_trial(params, user_attrs={"values": list(values)})
    failures = 0
    while True:
        begun = [t for t in trials_in(TrialState.RUNNING) if t.user_attrs.get("owner") == owner]
        batch = [(optuna.Trial(study, t._trial_id), Values(*t.user_attrs["values"])) for t in begun[: runner.parallel]]
        while not begun and len(batch) < runner.parallel and not runner.is_over:
            if len(trials_in(TrialState.RUNNING, TrialState.COMPLETE)) >= num_trials:
                break
            batch.append(_ask(study, owner, ranges, seed))
        if not batch:
            break
        trials = runner.run([values for _, values in batch])
        for (asked, _), trial in zip(batch, trials, strict=True):
            asked.set_user_attr("trial", {key: value for key, value in asdict(trial).items() if key != "values"})
            study.tell(asked, trial.linear_top1, state=TrialState.FAIL if trial.linear_top1 is None else None)
        failures = failures + 1 if all(trial.error for trial in trials) else 0
        if failures == 2:  # batches in a row: it is not the values
            raise UserError(trials[0].error)
    if elsewhere := len(trials_in(TrialState.RUNNING)):
        say(f"without {plural(elsewhere, 'running trial')} of other hosts; repeat the command later to include them")
    ended = [t.user_attrs for t in trials_in() if "trial" in t.user_attrs]
    return [Trial(values=Values(*noted["values"]), **noted["trial"]) for noted in ended]


def _ask(study: "optuna.Study", owner: str, ranges: Ranges, seed: int) -> "tuple[optuna.Trial, Values]":
    import optuna

    trial = study.ask()
    # Seeded by the trial's number, so that an interrupted study proposes what it would have proposed.
    study.sampler = optuna.samplers.TPESampler(
        seed=mixed_seed(seed, STREAM, trial.number) % 2**32, n_startup_trials=RANDOM_TRIALS, constant_liar=True
    )
    fixed: list[float] | None = trial.user_attrs.get("values")
    if fixed is None or ranges.hold(Values(*fixed)):
        k1 = trial.suggest_float("k1", *ranges.k1, log=True)
        k2 = trial.suggest_float("k2", *ranges.k2)
    values = _rounded(k1, k2) if fixed is None else Values(*fixed)
    trial.set_user_attr("values", list(values))
    trial.set_user_attr("owner", owner)
    return trial, values


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """The trials and the choice. `contune tune` prints `rows` and `lines`."""

    trials: list[Trial]
    choice: Trial
    own: Trial | None
    """The recipe's own values; None if their run failed."""
    paper: Trial | None
    advice: Advice | None
    command: str
    """Trains with the choice."""
    epochs: int

    def rows(self) -> list[tuple[str, ...]]:
        """The best first, those without an accuracy last."""
        rows = []
        for trial in sorted(self.trials, key=rank, reverse=True):
            mark = "→" if trial.values == self.choice.values else ""
            numbers = ["" if number is None else f"{number:.2f}" for number in (trial.linear_top1, trial.knn_top1)]
            rows.append((mark, *map(_plain, trial.values), *numbers, trial.remark))
        return rows

    def lines(self) -> list[str]:
        """The choice beside the defaults, and how far apart two numbers have to be to mean something."""
        choice, own = self.choice, self.own
        num_images = choice.num_images or 1
        low, high = wilson_interval(choice.linear_top1 or 0.0, num_images)
        lines = []
        if (advice := self.advice) is not None:
            effect = f"positives pull {advice.pull:.2f} and negatives push {advice.push:.2f} times as under SupCon"
            lines.append(
                f"advised  {advice.values}: step {advice.decisive_step} allows no larger k1; in the end {effect}"
            )
        lines.append(f"chosen   {choice.values}: {choice.linear_top1:.2f} %")
        for name, trial in (("the recipe's own values", own), ("the paper's default", self.paper)):
            if trial is not None and trial.values != choice.values:
                top1 = "failed" if trial.linear_top1 is None else f"{trial.linear_top1:.2f} %"
                lines[-1] += f"; {name} {top1}"
        images, epochs = plural(num_images, "validation image"), plural(self.epochs, "epoch")
        lines.append(f"         on {images} after {epochs}; 95 % interval {low:.1f} to {high:.1f} %")
        other = own if own is not None and own.values != choice.values else None
        if other is not None and wilson_interval(other.linear_top1 or 0.0, num_images)[1] >= low:
            lines.append("         within chance of the recipe's own values; train both before you rely on it")
        return [*lines, f"train    {self.command}"]


@broken_image_hint()
def tune(
    recipe: str,
    overrides: Sequence[str],
    config: Config,
    folder: Path,
    *,
    how: str,
    epochs: int | None = None,
    num_trials: int = NUM_TRIALS,
    parallel: int | None = None,
    minutes: float | None = None,
    ranges: Ranges = Ranges(),  # noqa: B008  # a tuple
    storage: str | None = None,
) -> Tuned:
    """Tunes `config`, which is the recipe with these overrides, and writes tune.json and trials.png into the folder.

    epochs: of a short run; None: a fifth of the recipe's, at least 10. The other options are those of `contune tune`.
    """
    if how not in WAYS:
        raise unknown("way to tune", how, WAYS)
    for name, value in {"epochs": epochs, "trials": num_trials, "parallel": parallel, "minutes": minutes}.items():
        if value is not None and not value > 0:
            raise UserError(f"--{name} must be above 0, got {value:g}")
    for name, ends in ranges._asdict().items():
        if len(ends) != 2 or not 0 < ends[0] < ends[1] < float("inf"):
            raise UserError(f"--{name} is not a range; give two numbers above 0, such as 100,5000")
    settings: Any = config.method.settings
    if not isinstance(settings, TCL.Settings):
        raise UserError(f"k1 and k2 belong to tcl, and the method is {config.method.name}; add method.name=tcl")
    num_epochs = epochs or default_epochs(config.optim.epochs)
    if num_epochs == 0:
        raise UserError("optim.epochs=0 trains nothing, so k1 and k2 make no difference; add --epochs 10")
    short = short_config(config, num_epochs)
    study, name = None, f"{short.data.name}-{short.fingerprint()}"
    _check_folder(folder, how, short)
    dataset = open_dataset(short.data)  # fails before any run is started if the data is not there
    if dataset.train.labels is None or dataset.val is None:
        raise UserError(f"{dataset.name} has no labels, and tuning needs them, also to tune without labels")
    if how == "search" and storage is not None:
        study = open_study(storage, name)
    make_parent(folder / SETTINGS)
    content = {"how": how, "epochs": epochs, "config": config.to_dict()}
    write_atomic(folder / SETTINGS, json.dumps(content, indent=2) + "\n")
    if parallel is None:  # short runs are small: a thread for each does more than all threads for one
        on_gpu = choose_device(config.run.device).type == "cuda"
        parallel = MOST_ON_A_GPU if on_gpu else min(MOST_ON_A_GPU, available_cores())
    until = time.monotonic() + 60 * minutes if minutes is not None else float("inf")
    paper = PAPER_DEFAULTS[settings.supervised]
    own = paper if isinstance(settings.k1, str) else Values(settings.k1, settings.knobs.k2)  # a search needs numbers
    runner = Runner(config=short, folder=folder, parallel=parallel, own=own, paper=paper, until=until)
    advice = None
    if how == "paper":
        trials = paper_procedure(runner, supervised=settings.supervised)
    elif how == "advise":
        trials, advice = _advised(runner, settings.temperature)
    else:
        study = study or open_study(f"sqlite:///{(folder / 'study.db').resolve()}", name)
        trials = search(study, runner, ranges, num_trials, short.run.seed)
    choice = best(trials)
    if choice is None:
        errors = [trial.error for trial in trials if trial.error]
        raise UserError(errors[0] if errors else "no trial finished in this time; use more --minutes")
    by_values = {trial.values: trial for trial in trials}
    kept = [text for text in overrides if text.partition("=")[0].strip() not in ("method.k1", "method.k2")]
    tuned = Tuned(
        trials=trials,
        choice=choice,
        own=by_values.get(own),
        paper=by_values.get(paper),
        advice=advice,
        command=shlex.join(["contune", "train", recipe, *kept, *choice.values.overrides]),
        epochs=num_epochs,
    )
    _write(folder, tuned, {"how": how, "recipe": recipe, "overrides": list(overrides), "epochs": num_epochs})
    return tuned


def _check_folder(folder: Path, how: str, short: Config) -> None:
    """A tuning may be done in a new or empty folder, or in one with the same trials."""
    if not (folder / SETTINGS).exists():
        check_new_folder(folder, "trials")
        return
    content = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
    whole = Config.from_dict(content["config"])
    before = short_config(whole, content["epochs"] or default_epochs(whole.optim.epochs))
    different = [*before.differences(short), *([f"--how ({content['how']})"] if content["how"] != how else [])]
    if different:
        raise UserError(f"{folder} holds trials with another {', '.join(different)}; use another --out")


def _write(folder: Path, tuned: Tuned, about: dict[str, Any]) -> None:
    def flat(found: Trial | Advice) -> dict[str, Any]:
        return {**found.values._asdict(), **{key: value for key, value in asdict(found).items() if key != "values"}}

    choice = tuned.choice
    content = {
        **about,
        "split": "val",
        "num_images": choice.num_images,
        **choice.values._asdict(),
        "linear_top1": choice.linear_top1,
        "knn_top1": choice.knn_top1,
        "command": tuned.command,
        "advice": None if tuned.advice is None else flat(tuned.advice),
        "trials": [flat(trial) for trial in tuned.trials],
    }
    write_atomic(folder / SUMMARY, json.dumps(content, indent=2) + "\n")
    title = f"{about['recipe']}: {plural(len(tuned.trials), 'trial')} of {plural(tuned.epochs, 'epoch')}"
    draw_trials(folder / PICTURE, tuned, title)


def draw_trials(path: Path, tuned: Tuned, title: str) -> None:
    """Accuracy over k1, k2 as color; the choice and the defaults are marked, SupCon is a line."""
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator

    from contune.report.style import INK, METHOD_STYLES, MUTED, STYLE, quiet

    finished = [trial for trial in tuned.trials if trial.linear_top1 is not None]
    points = [trial for trial in finished if trial.values.k1 > 0]
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7.6, 4.4), layout="constrained", facecolor="white")
        axes = figure.add_subplot()
        quiet(axes, grid="both")
        axes.set_xscale("log")
        axes.set(xlabel="k1", ylabel="linear probe on the validation split, %")
        k1s = [trial.values.k1 for trial in points] or [1.0]
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0,) if max(k1s) > 300 * min(k1s) else (1.0, 2.0, 5.0)))
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
        axes.minorticks_off()
        if points:
            xs, ys, k2s = zip(*((t.values.k1, t.linear_top1, t.values.k2) for t in points), strict=True)
            dots = axes.scatter(xs, ys, c=k2s, cmap="viridis", s=52, edgecolors="white", linewidths=0.8, zorder=3)
            figure.colorbar(dots, ax=axes, pad=0.02, aspect=30, label="k2").outline.set_visible(False)
        marks = {"chosen": (tuned.choice, "o", 15), OWN: (tuned.own, "s", 11), PAPER: (tuned.paper, "D", 11)}
        for name, (trial, marker, size) in marks.items():
            if trial is not None and trial in points:
                x, y = trial.values.k1, trial.linear_top1 or 0.0
                axes.plot(x, y, marker, markersize=size, label=name, mfc="none", mec=INK, mew=1.4, zorder=4)
        for y in (each.linear_top1 or 0.0 for each in finished if each.values.k1 == 0):
            axes.axhline(y, color=METHOD_STYLES["supcon"].color, linestyle="--", label=SUPCON, zorder=1)
        legend = figure.legend(title=title, loc="outside upper left", ncols=5, frameon=False, labelcolor=MUTED)
        legend.set_alignment("left")
        with atomic_file(path) as part:
            figure.savefig(part, format="png", dpi=160)
