"""The measures of an encoder: the one place that names them. It imports nothing heavy."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Measure:
    """One way to measure an encoder's accuracy."""

    key: str
    """Its name in result.json."""
    title: str
    """For reports and figures."""
    short_title: str
    """For tables in the terminal; tells the two linear probes apart."""
    meaning: str
    """One line for people who do not know the measure."""
    protocol: str
    """A template; `protocol.format(k=20, ...)` is the text that result.json holds."""
    baseline: str | None = None
    """The key of the same measure on raw pixels."""


_LOGISTIC = "logistic regression on {} (standardised, no augmentation, L-BFGS, weight penalty {{weight_penalty:g}})"
_KNN = "weighted kNN on {}, cosine, k={{k}}, T={{temperature:g}}, no augmentation"

_ALL = (
    Measure(
        key="linear",
        title="Linear probe",
        short_title="linear probe, the paper's",
        meaning="a linear classifier trained on the frozen encoder, on augmented images",
        protocol=(
            "linear layer, {epochs} epochs of SGD (lr {lr:g}, momentum 0.9, weight decay 1e-4, cosine, batch {batch}), "
            "augmented by {policy}, encoder and its batch-norm frozen; last epoch"
        ),
        baseline="pixels-linear-fast",
    ),
    Measure(
        key="linear-fast",
        title="Linear probe",
        short_title="linear probe, fast",
        meaning="a linear classifier trained on the frozen encoder’s features",
        protocol=_LOGISTIC.format("cached frozen features"),
        baseline="pixels-linear-fast",
    ),
    Measure(
        key="classifier",
        title="Classifier",
        short_title="classifier",
        meaning="the classifier that was trained together with the encoder",
        protocol="the classifier trained with the encoder, cross-entropy, last epoch",
        baseline="pixels-linear-fast",
    ),
    Measure(
        key="knn",
        title="Nearest neighbours",
        short_title="kNN",
        meaning="a vote of the most similar training images; nothing is trained",
        protocol=_KNN.format("frozen features"),
        baseline="pixels-knn",
    ),
    Measure(
        key="pixels-linear-fast",
        title="Raw pixels, linear",
        short_title="raw pixels, linear",
        meaning="the fast linear probe on pixels instead of features",
        protocol=_LOGISTIC.format("raw pixels"),
    ),
    Measure(
        key="pixels-knn",
        title="Raw pixels, neighbours",
        short_title="raw pixels, kNN",
        meaning="the neighbours’ vote on pixels instead of features",
        protocol=_KNN.format("raw pixels"),
    ),
)

MEASURES: dict[str, Measure] = {measure.key: measure for measure in _ALL}

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


def judged_by(result: Mapping[str, Any], column: str = TOP1, *, pixels: bool = False) -> dict[str, Any] | None:
    """The entry of result.json's `measures` that a run is judged by, or that another column shows. None: not measured.

    pixels: the same measure on raw pixels.
    """
    scores = {score["name"]: score for score in result["measures"]}
    keys = [f"pixels-{key}" if pixels else key for key in PREFERENCES[column]]
    return next((scores[key] for key in keys if key in scores), None)
