"""The measures of an encoder: the one place that names them. It imports nothing heavy."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any


@dataclass(frozen=True)
class Measure:
    """One way to measure an encoder's accuracy."""

    title: str
    """For reports and figures."""
    short_title: str
    """For tables and sentences; the two linear probes have different ones."""
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
    ("linear", "Full probe", "full probe", _SGD,
     "a linear classifier trained on the frozen encoder, on augmented images"),
    ("linear-authors", "Authors’ probe", "authors' probe", _AUTHORS,
     "the paper’s linear probe as the authors’ code trains it, which changes the encoder’s batch-norm statistics"),
    ("linear-fast", "Fast probe", "fast probe", _LOGISTIC.format("cached frozen features"),
     "a linear classifier trained on the frozen encoder’s features"),
    ("classifier", "Classifier", "classifier", _TRAINED,
     "the classifier that was trained together with the encoder"),
    ("online", "Online probe", "online probe", _ONLINE,
     "a linear classifier that learned while the encoder did"),
    ("knn", "kNN", "kNN", _KNN.format("frozen features"),
     "a vote of the most similar training images; nothing is trained"),
    ("start-linear-fast", "Before training, fast probe", "before training, fast probe",
     _LOGISTIC.format("the first features"),
     "the fast probe on the features of the encoder before training"),
    ("start-knn", "Before training, kNN", "before training, kNN", _KNN.format("the first features"),
     "the neighbors’ vote on the features of the encoder before training"),
    ("pixels-linear-fast", "Raw pixels, fast probe", "raw pixels, fast probe", _LOGISTIC.format("raw pixels"),
     "the fast probe on pixels instead of features"),
    ("pixels-knn", "Raw pixels, kNN", "raw pixels, kNN", _KNN.format("raw pixels"),
     "the neighbors’ vote on pixels instead of features"),
)  # fmt: skip

PIXELS, START = "pixels-", "start-"
"""Prefixes of measures that are not of the trained encoder: what it has to beat."""
MAP = "map"
"""Mean average precision, in the entries of result.json's `measures` for data with several labels per image."""
BALANCED, IMBALANCE = "balanced", "imbalance"
"""In those entries for data with one label per image: the mean of the accuracies of the classes, and how many times as
many training images the largest class has as the smallest."""
SHOTS = {"many": (101, inf), "medium": (20, 100), "few": (0, 19)}
"""Also the mean accuracy of classes with so many training images, if the classes differ (Liu et al. 2019)."""
IMBALANCED = 2.0
"""From this imbalance on, tables and reports show these."""
SEVERAL_LABELS = "; several labels per image: one sigmoid per class, mean average precision"
"""Added to a protocol then."""
MEASURES: dict[str, Measure] = {key: Measure(*row) for key, *row in _ROWS}
"""Accuracies, in result.json's `measures`."""

RECALLS = (1, 5, 10)
"""The K of Recall@K."""
_NEAREST = (
    "cosine similarity of frozen features, no augmentation; {queries}, references: all other images; "
    "queries without a reference of their class do not count"
)
_CLUSTERS = "k-means on L2-normalized features, as many clusters as classes, seed 0"
_RETRIEVAL_ROWS = (
    *((f"recall@{K}", f"Recall@{K}", f"R@{K} %", _NEAREST,
       f"share of queries that have an image of their class {'nearest' if K == 1 else f'among the {K} nearest'}")
      for K in RECALLS),
    ("map@r", "MAP@R", "MAP@R %", _NEAREST,
     "mean average precision of the R nearest; a class has R other images. It also counts their order"),
    ("r_precision", "R-precision", "R-prec. %", _NEAREST, "share of the R nearest that have the query’s class"),
    ("nmi", "NMI", "NMI %", _CLUSTERS, "how well clusters found by k-means agree with the classes"),
)  # fmt: skip
RETRIEVAL: dict[str, Measure] = {key: Measure(*row) for key, *row in _RETRIEVAL_ROWS}
"""In the `values` of the entries of result.json's `retrieval`."""
SEEN, UNSEEN = "seen", "unseen"
"""Names of those entries: classes of the training images, and classes held out by data.unseen_classes."""

TOP1, LINEAR, FAST, CLASSIFIER, KNN, RECALL = "top1", "linear", "fast", "classifier", "knn", "recall@1"
ONLINE = "online"
PREFERENCES: dict[str, tuple[str, ...]] = {
    TOP1: ("classifier", "linear", "linear-fast"),
    LINEAR: ("linear", "linear-fast"),
    FAST: ("linear-fast",),
    CLASSIFIER: ("classifier",),
    ONLINE: ("online",),
    KNN: ("knn",),
}
"""What a column of a table shows: the first of these measures that a run has. `top1` is what a run is judged by: the
classifier of a method that trains one, else the linear probe (the paper's if it was run, else the fast one). `RECALL`
is the Recall@1 of result.json's `retrieval` on seen classes."""


def columns_of_imbalance(measures: Iterable[Mapping[str, Any]]) -> list[str]:
    """Which of `BALANCED` and `SHOTS` to show with these entries of result.json's `measures`."""
    shown = {key for measure in measures if measure.get(IMBALANCE, 1) >= IMBALANCED for key in measure}
    return list(filter(shown.__contains__, (BALANCED, *SHOTS)))


def judged_by(result: Mapping[str, Any], column: str = TOP1, *, prefix: str = "") -> dict[str, Any] | None:
    """The entry of result.json's `measures` that a run is judged by, or that another column shows. None: not measured.

    Its `top1` is the mean average precision if images have several labels.
    prefix: `PIXELS` or `START`, the same measure on raw pixels or on the encoder before training.
    """
    if column == RECALL:
        for entry in result.get("retrieval", ()):
            if entry["name"] == SEEN:
                return {**entry, "name": RECALL, "top1": entry["values"][RECALL], "protocol": RETRIEVAL[RECALL].meaning}
        return None
    for key in PREFERENCES[column]:
        for score in result["measures"]:
            if score["name"] == prefix + key:
                return {**score, "top1": score[MAP]} if MAP in score else dict(score)
    return None
