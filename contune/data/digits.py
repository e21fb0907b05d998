"""Handwritten digits that come with scikit-learn: 1,797 real images of 8×8, no download."""

import torch

from contune.data.images import TensorImages
from contune.data.imageset import ImageSet, Splits, Traits
from contune.data.sequences import NumberedNames


def digits_splits() -> Splits:
    """The first half trains and the rest tests, in the order of the file, so writers hardly mix."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    x_N1HW = torch.from_numpy(bunch.images).mul(255 / 16).round().to(torch.uint8).unsqueeze(1)
    labels = torch.from_numpy(bunch.target).long()
    half = len(labels) // 2
    everything = ImageSet(images=TensorImages(x_N1HW), labels=labels, names=NumberedNames([("digits", len(labels))]))
    return Splits(
        train=everything.subset(range(half)),
        test=everything.subset(range(half, len(labels))),
        class_names=tuple(map(str, range(10))),
        traits=Traits(image_size=8, channels=1, mean=(0.3075,), std=(0.377,)),
    )
