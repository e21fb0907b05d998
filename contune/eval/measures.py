"""The measures of an encoder: the one place that names them. It imports nothing heavy."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Measure:
    """One way to measure an encoder's accuracy."""

    key: str
    """Its name in result.json."""
    title: str
    """For reports and figures."""
    short_title: str
    """For tables in the terminal; tells the two linear probes apart."""
    protocol: str
    """A template; `protocol.format(k=20, ...)` is the text that result.json holds."""
    meaning: str
    """One line for people who do not know the measure."""


_SGD = (
    "linear layer, {epochs} epochs of SGD (lr {lr:g}, momentum 0.9, weight decay 1e-4, cosine, batch {batch}), "
    "augmented by {policy}, encoder and its batch-norm frozen; last epoch"
)
_AUTHORS = (
    "linear layer, {epochs} epochs of SGD (lr {lr:g}, momentum 0.9, weight decay 1e-4, cosine one epoch late to "
    "1e-3 of the lr, batch {batch}), augmented by {policy}, encoder frozen except batch-norm statistics; last epoch"
)
_ONLINE = (
    "linear layer trained along with the encoder on detached features of augmented views (SGD, lr 0.1, momentum 0.9)"
)
_TRAINED = "the classifier trained with the encoder, cross-entropy, last epoch"
_LOGISTIC = "logistic regression on {} (standardized, no augmentation, L-BFGS, weight penalty by cross-validation)"
_KNN = "weighted kNN on {}, cosine, k={{k}}, T={{temperature:g}}, no augmentation"

_ROWS = (
    ("linear", "Linear probe", "linear probe, the paper's", _SGD,
     "a linear classifier trained on the frozen encoder, on augmented images"),
    ("linear-authors", "Linear probe, authors’", "linear probe, the authors'", _AUTHORS,
     "the paper’s linear probe as the authors’ code trains it, which changes the encoder’s batch-norm statistics"),
    ("linear-fast", "Linear probe", "linear probe, fast", _LOGISTIC.format("cached frozen features"),
     "a linear classifier trained on the frozen encoder’s features"),
    ("classifier", "Classifier", "classifier", _TRAINED,
     "the classifier that was trained together with the encoder"),
    ("online", "Online probe", "online probe", _ONLINE,
     "a linear classifier that learned while the encoder did"),
    ("knn", "Nearest neighbors", "kNN", _KNN.format("frozen features"),
     "a vote of the most similar training images; nothing is trained"),
    ("start-linear-fast", "Before training, linear", "before training, linear", _LOGISTIC.format("the first features"),
     "the fast linear probe on the features of the encoder before training"),
    ("start-knn", "Before training, neighbors", "before training, kNN", _KNN.format("the first features"),
     "the neighbors’ vote on the features of the encoder before training"),
    ("pixels-linear-fast", "Raw pixels, linear", "raw pixels, linear", _LOGISTIC.format("raw pixels"),
     "the fast linear probe on pixels instead of features"),
    ("pixels-knn", "Raw pixels, neighbors", "raw pixels, kNN", _KNN.format("raw pixels"),
     "the neighbors’ vote on pixels instead of features"),
)  # fmt: skip

PIXELS, START = "pixels-", "start-"
"""Prefixes of measures that are not of the trained encoder: what it has to beat."""
MAP = "map"
"""Mean average precision, in the entries of result.json's `measures` for data with several labels per image."""
SEVERAL_LABELS = "; several labels per image: one sigmoid per class, mean average precision"
"""Added to a protocol then."""
MEASURES: dict[str, Measure] = {row[0]: Measure(*row) for row in _ROWS}

TOP1, LINEAR, FAST, CLASSIFIER, KNN = "top1", "linear", "fast", "classifier", "knn"
PREFERENCES: dict[str, tuple[str, ...]] = {
    TOP1: ("classifier", "linear", "linear-fast"),
    LINEAR: ("linear", "linear-fast"),
    FAST: ("linear-fast",),
    CLASSIFIER: ("classifier",),
    KNN: ("knn",),
}
"""What a column of a table shows: the first of these measures that a run has. `top1` is what a run is judged by: the
classifier of a method that trains one, else the linear probe (the paper's if it was run, else the fast one)."""


def judged_by(result: Mapping[str, Any], column: str = TOP1, *, prefix: str = "") -> dict[str, Any] | None:
    """The entry of result.json's `measures` that a run is judged by, or that another column shows. None: not measured.

    prefix: `PIXELS` or `START`, the same measure on raw pixels or on the encoder before training.
    """
    for key in PREFERENCES[column]:
        for score in result["measures"]:
            if score["name"] == prefix + key:
                return dict(score)
    return None
