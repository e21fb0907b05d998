"""Native size, channels, mean and standard deviation of images nobody has described.

Shapes: N images, C channels, H height, W width.
"""

from collections import Counter

import numpy as np

from contune.data.decode import peek
from contune.data.images import EncodedImages, Progress, TensorImages
from contune.data.imageset import ImageSet, Traits

NUM_SAMPLED = 2000
SAMPLE_SIZE = 64


def measure(train: ImageSet, progress: Progress | None = None) -> Traits:
    """From up to 2,000 evenly spaced images, squashed to 64×64 or less: the same ones every time."""
    positions = np.linspace(0, len(train) - 1, min(len(train), NUM_SAMPLED)).round().astype(np.int64)
    sample = train.subset(positions)
    image_size, channels = _size_and_channels(sample.images)
    x_NCHW = sample.resident(min(SAMPLE_SIZE, image_size), channels, progress).numpy()
    mean, std = moments(x_NCHW)
    return Traits(image_size=image_size, channels=channels, mean=mean, std=std)


def moments(x_NCHW: np.ndarray) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation per channel of uint8 pixels scaled to 0..1, to four decimals.

    From counts of the 256 values, so the sums are exact whatever their order. A constant channel gets one
    gray level, 1/255, as its deviation, because images are divided by it.
    """
    levels = np.arange(256) / 255
    means, stds = [], []
    for channel in range(x_NCHW.shape[1]):
        weights = np.bincount(x_NCHW[:, channel].reshape(-1), minlength=256) / x_NCHW[:, channel].size
        mean = float(weights @ levels)
        std = float(np.sqrt(weights @ (levels - mean) ** 2))
        means.append(round(mean, 4))
        stds.append(round(max(std, 1 / 255), 4))
    return tuple(means), tuple(stds)


def _size_and_channels(images: TensorImages | EncodedImages) -> tuple[int, int]:
    if isinstance(images, TensorImages):
        return min(images.tensor.shape[2:]), images.tensor.shape[1]
    sides, grays = zip(
        *(peek(source, name) for source, name in zip(images.sources, images.names, strict=True)), strict=True
    )
    return Counter(sides).most_common(1)[0][0], 1 if all(grays) else 3
