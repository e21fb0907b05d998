"""The classifier that a run leaves beside its encoder, for `contune predict`."""

from pathlib import Path

from contune.config import Config
from contune.errors import UserError
from contune.eval.evaluate import Evaluation
from contune.models.classifier import CLASSIFIER_FILE, load_classifier, save_classifier


def keep_classifier(folder: Path, evaluation: Evaluation) -> None:
    """Where one was measured: without labels there is none."""
    if evaluation.classifier is not None:
        save_classifier(folder / CLASSIFIER_FILE, evaluation.classifier)


def keep_missing(folder: Path, evaluation: Evaluation, before: Config, now: Config) -> None:
    """That of a later evaluation, if it was on the same data and the run has none that can be read."""
    if any(key.startswith("data.") for key in before.differences(now)):
        return
    try:
        load_classifier(folder)
    except UserError:
        keep_classifier(folder, evaluation)
