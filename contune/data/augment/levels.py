"""AutoAugment's four blends: of an image with black, its mean gray, its gray image or its smoothed self.

Levels are whole numbers 0…255 in float32, truncated after every step as torchvision does on uint8; the order
of the additions is torchvision's too, since a sum just under a whole number is truncated.

B: samples, C: channels, H, W: height, width.
"""

from collections.abc import Callable

from torch import Tensor

from contune.data.augment.color import LUMA, black
from contune.data.augment.lookup import TOP_LEVEL
from contune.data.augment.subpolicies import Op


def gray_levels(levels_BCHW: Tensor) -> Tensor:
    if levels_BCHW.shape[1] == 1:
        return levels_BCHW
    red, green, blue = (levels_BCHW[:, c] * weight for c, weight in enumerate(LUMA))
    return red.add_(green).add_(blue).floor_()[:, None]


def mean_gray(levels_BCHW: Tensor) -> Tensor:
    return gray_levels(levels_BCHW).mean((2, 3), keepdim=True)


def smooth_levels(levels_BCHW: Tensor) -> Tensor:
    """A 3×3 mean whose centre weighs 5 of 13, rounded; the outermost pixels stay."""
    three = (levels_BCHW[..., :-2] + levels_BCHW[..., 1:-1]).add_(levels_BCHW[..., 2:])
    nine = (three[..., :-2, :] + three[..., 1:-1, :]).add_(three[..., 2:, :])
    smooth = levels_BCHW.clone()
    smooth[..., 1:-1, 1:-1] = nine.add_(levels_BCHW[..., 1:-1, 1:-1], alpha=4).div_(13).round_()
    return smooth


OTHERS: dict[Op, Callable[[Tensor], Tensor]] = {
    Op.BRIGHTNESS: black,
    Op.CONTRAST: mean_gray,
    Op.COLOR: gray_levels,
    Op.SHARPNESS: smooth_levels,
}
"""What each operation blends an image with."""


def blend(levels_BCHW: Tensor, other: Tensor, magnitude_B: Tensor) -> Tensor:
    """(1 + magnitude) · levels - magnitude · other, clamped and truncated; a magnitude of 0 keeps the image."""
    magnitude = magnitude_B[:, None, None, None]
    blended = (levels_BCHW * (1 + magnitude)).sub_(other * magnitude)
    return blended.clamp_(0, TOP_LEVEL).floor_()
