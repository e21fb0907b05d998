"""Images → classes with probabilities, by the classifier that a run left beside its encoder.

Shapes: B images, K classes.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from contune.data.broken import Broken
from contune.embedding.embeddings import BATCH, embed
from contune.embedding.source import Images
from contune.errors import UserError
from contune.models.saved import load_classifier
from contune.models.saved import load_encoder


@dataclass(frozen=True, kw_only=True)
class Predicted:
    """A batch of images with the probability of each class."""

    paths: list[str]
    labels: list[str | None]
    """The class folder or the label column, where there is one."""
    class_names: tuple[str, ...]
    probabilities: np.ndarray
    """float32 (B, K)"""
    broken: list[Broken]

    @property
    def classes(self) -> list[str]:
        """The likeliest class of each image."""
        return [self.class_names[index] for index in self.probabilities.argmax(axis=1)]


def predict(
    run: str | Path,
    images: Images,
    *,
    batch: int = BATCH,
    device: str = "auto",
    broken: str = "skip",
    workers: int | None = None,
    label_column: str | None = None,
) -> Iterator[Predicted]:
    """The classes of a folder, a file or parquet, a batch at a time.

        for part in contune.predict("runs/photos", "new-photos/"):
            print(*zip(part.paths, part.classes))

    Cross-entropy has trained its classifier together with the encoder; for the other methods it is the linear probe.
    Arguments as for `contune.embed`.
    """
    encoder, classifier = load_encoder(run), load_classifier(Path(run))
    if classifier.weight_KD.shape[1] != encoder.num_features:
        raise UserError(
            f"the classifier of {run} takes {classifier.weight_KD.shape[1]} features and its encoder gives "
            f"{encoder.num_features}; `contune eval {run}` writes one that fits"
        )

    def predicted() -> Iterator[Predicted]:
        for part in embed(
            encoder, images, batch=batch, device=device, broken=broken, workers=workers, label_column=label_column
        ):
            yield Predicted(
                paths=part.paths,
                labels=part.labels,
                class_names=classifier.class_names,
                probabilities=classifier.probabilities(torch.from_numpy(part.embeddings)).numpy(),
                broken=part.broken,
            )

    return predicted()
