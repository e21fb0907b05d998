"""The classifier that a run leaves beside its encoder, for `contune predict`."""

from pathlib import Path

from contune.config import Config
from contune.errors import UserError
from contune.eval.evaluate import Evaluation
from contune.models.classifier import CLASSIFIER_FILE, load_classifier, save_classifier
from contune.run import RunFolder


def keep_classifier(folder: Path, evaluation: Evaluation) -> None:
    """Where one was measured: without labels there is none."""
    if evaluation.classifier is not None:
        save_classifier(folder / CLASSIFIER_FILE, evaluation.classifier)


def keep_missing(run: RunFolder, evaluation: Evaluation, config: Config) -> bool:
    """That of a later evaluation, where the run has none that can be read: on its own data, or, where these have no
    labels, on others. Whether it was kept."""
    on_other_data = any(key.startswith("data.") for key in run.config().differences(config))
    if evaluation.classifier is None or (on_other_data and _has_labels(run)):
        return False
    try:
        load_classifier(run.path)
    except UserError:
        keep_classifier(run.path, evaluation)
        return True
    return False


def _has_labels(run: RunFolder) -> bool:
    """kNN is measured wherever there are."""
    return "knn_top1" in (run.result() or {})
