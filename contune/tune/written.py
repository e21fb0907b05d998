"""What tuning leaves: tune.json, a picture of the trials, and the sentences at its end."""

import json
import shlex
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from contune.console import plural
from contune.files import write_whole
from contune.report.statistics import wilson_interval
from contune.tune.plot import draw_trials
from contune.tune.trial import Trial, plain, rank
from contune.tune.tuning import Outcome

JSON, PICTURE = "tune.json", "trials.png"
COLUMNS = ("", "k1", "k2", "linear %", "kNN %", "")


def train_command(recipe: str, overrides: Sequence[str], choice: Trial) -> str:
    """Trains with what was found: the recipe and settings that were tuned, and the two values."""
    kept = [text for text in overrides if text.partition("=")[0].strip() not in ("method.k1", "method.k2")]
    return shlex.join(["contune", "train", recipe, *kept, *choice.values.overrides])


def write(folder: Path, outcome: Outcome, *, recipe: str, overrides: Sequence[str], how: str, epochs: int) -> None:
    choice = outcome.choice
    content: dict[str, Any] = {
        "how": how,
        "recipe": recipe,
        "overrides": list(overrides),
        "epochs": epochs,
        "split": "val",
        "num_images": choice.num_images,
        "k1": choice.values.k1,
        "k2": choice.values.k2,
        "linear_top1": choice.accuracy,
        "knn_top1": choice.knn,
        "command": train_command(recipe, overrides, choice),
        "advice": None if outcome.advice is None else asdict(outcome.advice) | outcome.advice.values._asdict(),
        "trials": [_as_dict(trial) for trial in outcome.trials],
    }
    if content["advice"] is not None:
        del content["advice"]["values"]
    write_whole(folder / JSON, json.dumps(content, indent=2) + "\n")
    title = f"{recipe}: {plural(len(outcome.trials), 'trial')} of {plural(epochs, 'epoch')}"
    draw_trials(folder / PICTURE, outcome.trials, choice, title=title)


def _as_dict(trial: Trial) -> dict[str, Any]:
    values = asdict(trial)
    k1, k2 = values.pop("values")
    names = {"accuracy": "linear_top1", "knn": "knn_top1"}
    return {"k1": k1, "k2": k2} | {names.get(name, name): value for name, value in values.items()}


def rows(outcome: Outcome) -> list[tuple[str, ...]]:
    """The trials as a table, the best first and those without an accuracy last."""
    ranked = sorted(outcome.trials, key=rank, reverse=True)
    return [
        (
            "→" if trial.values == outcome.choice.values else "",
            plain(trial.values.k1),
            plain(trial.values.k2),
            "" if trial.accuracy is None else f"{trial.accuracy:.2f}",
            "" if trial.knn is None else f"{trial.knn:.2f}",
            trial.remark,
        )
        for trial in ranked
    ]


def verdict(outcome: Outcome, epochs: int) -> str:
    """The choice beside the defaults, and how far apart two numbers have to be to mean something."""
    choice = outcome.choice
    assert choice.accuracy is not None
    assert choice.num_images is not None
    beside = [
        f"{name} {_percent(trial)}"
        for name, trial in (("the recipe's own values", outcome.own), ("the paper's default", outcome.paper))
        if trial is not None and trial.values != choice.values
    ]
    low, high = wilson_interval(choice.accuracy, choice.num_images)
    sentence = f"chosen   {choice.values}: {_percent(choice)}" + "".join(f"; {words}" for words in beside)
    reading = (
        f"         measured on {choice.num_images:,} validation images after {plural(epochs, 'epoch')}; with so many "
        f"images {_percent(choice)} means {low:.1f} to {high:.1f}"
    )
    return "\n".join([sentence, reading, *_within_chance(outcome), *_supcon(outcome)])


def _within_chance(outcome: Outcome) -> list[str]:
    """The best of many trials is partly the luckiest, so a lead that a few images make has to be said."""
    own, choice = outcome.own, outcome.choice
    if own is None or own.accuracy is None or own.values == choice.values or not choice.num_images:
        return []
    lead = (choice.accuracy or 0.0) - own.accuracy
    low, _ = wilson_interval(choice.accuracy or 0.0, choice.num_images)
    _, high = wilson_interval(own.accuracy, choice.num_images)
    if low > high:
        return []
    images = round(lead * choice.num_images / 100)
    if images == 0:
        return ["         the recipe's own values are right on as many images; train both before you rely on it"]
    return [
        f"         its lead over the recipe's own values is {plural(images, 'image')}, which chance can make, the more "
        f"so for the best of {len(outcome.trials)} trials; train both before you rely on it"
    ]


def _supcon(outcome: Outcome) -> list[str]:
    found = [t for t in outcome.trials if t.is_finished and t.values.k1 == 0 and t.values != outcome.choice.values]
    sentences = []
    for trial in found:
        lead = (trial.accuracy or 0.0) - (outcome.choice.accuracy or 0.0)
        if lead >= 0:
            word = "is above it" if lead else "does as well"
            numbers = f"{_percent(trial)}{_knn(trial, outcome.choice)}"
            sentences.append(f"         SupCon, k1 = 0, {word}: {numbers}; try method.name=supcon")
    return sentences


def _knn(trial: Trial, choice: Trial) -> str:
    known = trial.knn is not None and choice.knn is not None
    return f" (kNN {trial.knn:.2f} %, of the choice {choice.knn:.2f} %)" if known else ""


def _percent(trial: Trial) -> str:
    return f"{trial.accuracy:.2f} %" if trial.accuracy is not None else "failed"
