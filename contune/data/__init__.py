"""Images and labels: from a name or a path to batches on the device."""

from contune.data.datasets import DATASETS, holdout, load_dataset
from contune.data.images import Dataset, ImageSet
from contune.data.sampler import balanced_batches, shuffled_order

__all__ = [
    "DATASETS",
    "Dataset",
    "ImageSet",
    "balanced_batches",
    "holdout",
    "load_dataset",
    "shuffled_order",
]
