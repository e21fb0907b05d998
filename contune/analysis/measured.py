"""The measured split as the report's sections read it: what each image is, and what it was taken for."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from contune.data.imageset import ImageSet


@dataclass(frozen=True, kw_only=True, eq=False)
class Measured:
    """M images of one split with D features each."""

    images: ImageSet
    channels: int
    class_names: tuple[str, ...]
    features: Tensor
    """float32 (M, D)"""
    predicted: Tensor | None
    """int64 (M,); None where nothing was predicted."""
    predicted_by: str = ""
    """The name of the measure whose predictions these are."""
    points: np.ndarray | None = None
    """Where the images of the map lie, if that is known already."""

    def __post_init__(self) -> None:
        assert len(self.features) == len(self.images), (self.features.shape, len(self.images))

    def __len__(self) -> int:
        return len(self.images)

    @property
    def labels(self) -> Tensor | None:
        return self.images.labels

    def wrong(self) -> Tensor:
        """Which images were taken for another class; none where nothing was predicted."""
        if self.labels is None or self.predicted is None:
            return torch.zeros(len(self), dtype=torch.bool)
        return self.labels != self.predicted

    def class_of(self, index: int) -> str | None:
        return None if self.labels is None else self.class_names[int(self.labels[index])]

    def taken_for(self, index: int) -> str | None:
        """The class it was wrongly taken for; None where it was right or nothing was predicted."""
        if self.labels is None or self.predicted is None:
            return None
        predicted = int(self.predicted[index])
        return None if predicted == int(self.labels[index]) else self.class_names[predicted]


def evenly_spaced(num: int, most: int) -> Tensor:
    """At most `most` positions out of `num`, spread over all of them."""
    if num <= most:
        return torch.arange(num)
    return torch.arange(most) * num // most
