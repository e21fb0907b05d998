"""Images and labels: from a name or a path to batches on the device."""

from contune.data.datasets import DATASETS, holdout, load_dataset
from contune.data.images import Dataset, EncodedImages, Images, ImageSet, TensorImages
from contune.data.sampler import balanced_batches, shuffled_order

__all__ = [
    "DATASETS",
    "Dataset",
    "EncodedImages",
    "ImageSet",
    "Images",
    "TensorImages",
    "balanced_batches",
    "holdout",
    "load_dataset",
    "shuffled_order",
]
