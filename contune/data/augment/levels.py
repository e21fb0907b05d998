"""AutoAugment's four blends: of an image with black, its mean gray, its gray image or its smoothed self.

Levels are whole numbers 0…255 in float32, truncated after every step as torchvision does on uint8; the order
of the additions is torchvision's too, since a sum just under a whole number is truncated.

B: samples, C: channels, H, W: height, width.
"""

import torch
from torch import Tensor

from contune.data.augment.color import LUMA
from contune.data.augment.constants import constant
from contune.data.augment.lookup import TOP_LEVEL


def gray_levels(levels_BCHW: Tensor) -> Tensor:
    if levels_BCHW.shape[1] == 1:
        return levels_BCHW
    weighted = levels_BCHW * constant(LUMA, levels_BCHW.device)[:, None, None]
    return (weighted[:, 0] + weighted[:, 1]).add_(weighted[:, 2]).trunc_()[:, None]


def smooth_levels(levels_BCHW: Tensor) -> Tensor:
    """A 3×3 mean whose centre weighs 5 of 13, rounded; the outermost pixels stay."""
    three = (levels_BCHW[..., :-2] + levels_BCHW[..., 1:-1]).add_(levels_BCHW[..., 2:])
    nine = (three[..., :-2, :] + three[..., 1:-1, :]).add_(three[..., 2:, :])
    smooth = levels_BCHW.clone()
    smooth[..., 1:-1, 1:-1] = nine.add_(levels_BCHW[..., 1:-1, 1:-1], alpha=4).div_(13).round_()
    return smooth


def blend_levels(
    levels_BCHW: Tensor, magnitude_B: Tensor, to_mean_B: Tensor, to_gray_B: Tensor, to_smooth_B: Tensor
) -> Tensor:
    """(1 + magnitude) · image - magnitude · other, clamped and truncated; a magnitude of 0 keeps the image.

    The other is the mean gray, the gray image or the smoothed image where its flag is set, else black.
    """
    magnitude, to_mean, to_gray, to_smooth = (
        value[:, None, None, None] for value in (magnitude_B, to_mean_B, to_gray_B, to_smooth_B)
    )
    gray_B1HW = gray_levels(levels_BCHW)
    flat_B111 = gray_B1HW.mean((2, 3), keepdim=True) * to_mean
    other = torch.where(to_smooth, smooth_levels(levels_BCHW), torch.where(to_gray, gray_B1HW, flat_B111))
    blended = (levels_BCHW * (1 + magnitude)).sub_(other.mul_(magnitude))
    return blended.clamp_(0, TOP_LEVEL).trunc_()
