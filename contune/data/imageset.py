"""One split, and a set of splits: what every source of images ends in."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from contune.data.broken import Broken
from contune.data.images import EncodedImages, Progress, TensorImages, decode_all
from contune.data.sequences import Picked
from contune.errors import MOST_NAMES


@dataclass(frozen=True, kw_only=True, eq=False)
class ImageSet:
    """The images of one split."""

    images: TensorImages | EncodedImages
    labels: Tensor | None
    """int64 (N,), positions in the data set's `class_names`; None where nothing is labelled."""
    names: Sequence[str]
    """Per image its path or 'name#index', for reports and error sentences."""

    def __post_init__(self) -> None:
        assert len(self.names) == len(self.images), (len(self.names), len(self.images))
        if self.labels is not None:
            assert len(self.labels) == len(self.images), (len(self.labels), len(self.images))

    def __len__(self) -> int:
        return len(self.images)

    def subset(self, indices: Tensor | np.ndarray | Sequence[int]) -> "ImageSet":
        """The images at these positions, in this order."""
        positions = np.asarray(indices, dtype=np.int64)
        return ImageSet(
            images=self.images.pick(positions),
            labels=None if self.labels is None else self.labels[torch.from_numpy(positions)],
            names=Picked(self.names, positions),
        )

    def resident(self, size: int, channels: int, progress: Progress | None = None) -> Tensor:
        """Every image as uint8 (N, C, size, size). Pixels that have this shape already are not copied."""
        if isinstance(self.images, TensorImages) and self.images.tensor.shape[1:] == (channels, size, size):
            return self.images.tensor
        return decode_all(self.images, size, channels, progress)


@dataclass(frozen=True, kw_only=True)
class Traits:
    """How the images of a set look: what a config starts from."""

    image_size: int
    channels: int
    mean: tuple[float, ...]
    std: tuple[float, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Splits:
    """What a source holds, before anything is held out or measured."""

    train: ImageSet
    test: ImageSet | None = None
    val: ImageSet | None = None
    class_names: tuple[str, ...] = ()
    traits: Traits | None = None
    """Where the literature has settled them; None asks for a measurement."""
    maybe_labels: tuple[str, ...] = ()
    """Columns that may hold the labels, where none is called so."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Dataset:
    """A data set ready to train on."""

    name: str
    train: ImageSet
    test: ImageSet | None
    val: ImageSet | None
    class_names: tuple[str, ...]
    """Empty where nothing is labelled."""
    image_size: int
    """The native one; for images of many sizes, the most common shorter side."""
    channels: int
    """1 where every image is gray, else 3."""
    mean: tuple[float, ...]
    """Per channel, of pixels scaled to 0..1."""
    std: tuple[float, ...]
    skipped: tuple[Broken, ...] = ()
    """Images that are left out because they cannot be decoded; always empty where nobody asked to skip them."""
    held_out: tuple[str, ...] = ()
    """Which of `test` and `val` are drawn from the training images; the others the set brings."""
    maybe_labels: tuple[str, ...] = ()
    """Columns that may hold the labels, where none is called so."""


def where_labels_may_be(columns: Sequence[str], option: str) -> str:
    """For a person whose `maybe_labels` these are; `option` is how they name one."""
    more = f" and {len(columns) - MOST_NAMES:,} more" if len(columns) > MOST_NAMES else ""
    named = f"one of its columns {', '.join(columns[:MOST_NAMES])}{more}" if columns[1:] else f"its column {columns[0]}"
    return f"where {named} holds the labels, add {option}{columns[0]}"
