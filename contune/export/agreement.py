"""Whether an export gives the features of the run, on real photos.

Shapes: N images, C channels, H height, W width, D features.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from contune.data.augment import resize
from contune.errors import UserError

TOLERANCE = 1e-4
HALF_TOLERANCE = 3e-2
"""Half precision has 11 bits: a rounding error is 5e-4 of a number, and layers add theirs up, to 1e-2 of the largest
feature where an encoder has hardly been trained; what is wrong, such as an overflow, is out by far more."""
ROUNDED_OTHERWISE = 1e-2
"""More, for images that are resized: a value half way between two levels may round up here and down there."""


def photos(size: int, channels: int) -> Tensor:
    """uint8 (5, C, size, size), from the photos that come with scikit-learn."""
    whole_NCHW = _whole_photos(channels)
    return resize(torch.cat([*whole_NCHW.split(320, dim=3), whole_NCHW.flip(3)[..., :320]])[:5], size)


def photos_of_other_sizes(size: int, channels: int) -> Iterator[Tensor]:
    """uint8 batches (N, C, H, W): one large, one small and narrow."""
    whole_NCHW = _whole_photos(channels)
    yield whole_NCHW[:1]
    yield resize(whole_NCHW, max(4, size // 2))[..., : max(3, size // 3)]


def _whole_photos(channels: int) -> Tensor:
    from sklearn.datasets import load_sample_images

    whole_NCHW = torch.stack([torch.from_numpy(photo.copy()) for photo in load_sample_images().images])
    whole_NCHW = whole_NCHW.permute(0, 3, 1, 2)
    if channels == 1:
        whole_NCHW = whole_NCHW.float().mean(dim=1, keepdim=True).round().to(torch.uint8)
    return whole_NCHW


def deviation(expected_ND: Tensor, found_ND: Tensor) -> float:
    """The largest difference, as a share of the largest feature where that is above 1; infinite for a NaN."""
    if expected_ND.shape != found_ND.shape:
        return float("inf")
    share = (expected_ND - found_ND.to(expected_ND)).abs().max() / expected_ND.abs().max().clamp(min=1)
    return float(share.nan_to_num(nan=float("inf")))


def check(deviation: float, tolerance: float, what: str, way_out: str) -> None:
    if deviation > tolerance:
        raise UserError(
            f"{what} differs from the run's features by {deviation:.4g}, and {tolerance:g} is allowed, "
            f"so nothing was written; {way_out}"
        )
