"""Images and labels: from a name or a path to batches on the device."""

from contune.data.datasets import DATASETS as DATASETS
from contune.data.datasets import load_dataset as load_dataset
from contune.data.images import ImageSet as ImageSet
