"""Images and labels: from a name or a path to batches on the device."""

from contune.data.datasets import DATASETS, load_dataset
from contune.data.images import EncodedImages, Images, TensorImages
from contune.data.imageset import Dataset, ImageSet
from contune.data.sampler import balanced_batches, shuffled_order
from contune.data.split import holdout

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
