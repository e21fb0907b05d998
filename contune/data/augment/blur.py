"""Gaussian blur with a different width in every sample.

The kernel reaches three standard deviations of the widest blur (99.7 % of its mass), less where the image is
too small for that: reflection at the border can mirror at most size - 1 pixels. SimCLR's own code cuts the
kernel at a tenth of the image instead, which at 32 pixels leaves 3 taps, so every sigma above 1 is nearly
the same box; Pillow, under the recipes of solo-learn, blurs with the full width, and so do we.

B: samples, N: the image's side, T: taps from the kernel's centre outwards.
"""

import math
from functools import cache, partial

import torch
from torch import Tensor

from contune.data.augment.constants import count_to
from contune.data.augment.grouping import where_chosen
from contune.data.augment.resample import apply_separable

_NARROWEST = 1e-3
"""A Gaussian this narrow is exactly a single pixel in float32; what is not to be blurred must not divide by 0."""


def blur_radius(largest_sigma: float, size: int) -> int:
    return min(math.ceil(3 * largest_sigma), size - 1)


@cache
@torch.inference_mode(False)
def _tap_of_pixel(size: int, radius: int, device: torch.device) -> Tensor:
    """(3, N·N): which tap carries input pixel j to output i, directly and by reflection at either end.

    The tap radius + 1 stands for none.
    """
    i_N1, j_N = torch.arange(size)[:, None], torch.arange(size)
    none = radius + 1
    direct = (i_N1 - j_N).abs()
    at_start = torch.where(j_N > 0, i_N1 + j_N, none)
    at_end = torch.where(j_N < size - 1, 2 * (size - 1) - i_N1 - j_N, none)
    return torch.stack([direct, at_start, at_end]).clamp(max=none).flatten(1).to(device)


def gaussian_blur(images_BCNN: Tensor, sigma_B: Tensor, radius: int) -> Tensor:
    """Blurred by sigma_B pixels with reflection at the border; a sigma of 0 leaves the image as it is."""
    return where_chosen(images_BCNN, sigma_B > 0, partial(_blur, radius=radius), sigma_B)


def _blur(images_BCNN: Tensor, sigma_B: Tensor, radius: int) -> Tensor:
    size, device = images_BCNN.shape[-1], images_BCNN.device
    scaled_BT = count_to(radius + 2, device) / sigma_B.clamp(min=_NARROWEST)[:, None]
    taps_BT = (-0.5 * scaled_BT.square_()).exp_()
    taps_BT[:, radius + 1] = 0
    taps_BT = taps_BT / (2 * taps_BT.sum(1, keepdim=True) - 1)
    direct, at_start, at_end = _tap_of_pixel(size, radius, device)
    weights = taps_BT.index_select(1, direct)
    weights += taps_BT.index_select(1, at_start)
    weights += taps_BT.index_select(1, at_end)
    weights_BNN = weights.unflatten(1, (size, size))
    return apply_separable(images_BCNN, weights_BNN, weights_BNN)
