"""Colour changes of float images in [0, 1], with a strength for each sample.

B: samples, C: channels (1 or 3), H, W: height, width, S: steps of the jitter.
"""

import torch
from torch import Tensor

from contune.data.augment.constants import constant

LUMA = (0.2989, 0.587, 0.114)
BRIGHTNESS, CONTRAST, SATURATION, HUE = range(4)
NUM_JITTERS = 4


def gray(images_BCHW: Tensor) -> Tensor:
    """The luma (B, 1, H, W), with torchvision's weights; a one-channel image is its own."""
    if images_BCHW.shape[1] == 1:
        return images_BCHW
    return (images_BCHW * constant(LUMA, images_BCHW.device)[:, None, None]).sum(1, keepdim=True)


def shift_hue(images_B3HW: Tensor, turn_B: Tensor) -> Tensor:
    """Hue turned by `turn_B` of the colour circle (-1/2 to 1/2), value and saturation kept.

    With the hue h in sixths of the circle, value V and chroma D = max - min, the channel at offset n
    (5, 3, 1 for red, green, blue) is V - D · clamp(min(k, 4 - k), 0, 1) where k = (n + h) mod 6.
    """
    device = images_B3HW.device
    value_B1HW, brightest_B1HW = images_B3HW.max(1, keepdim=True)
    chroma_B1HW = value_B1HW - images_B3HW.amin(1, keepdim=True)
    # (g - b, b - r, r - g): the hue's distance from the brightest channel's own, times the chroma.
    difference = images_B3HW.roll(-1, 1) - images_B3HW.roll(-2, 1)
    sixths = (difference / chroma_B1HW.clamp(min=1e-12)).add_(constant((0, 2, 4), device)[:, None, None])
    hue_B1HW = sixths.gather(1, brightest_B1HW) + 6 * turn_B[:, None, None, None]
    k_B3HW = (hue_B1HW + constant((5, 3, 1), device)[:, None, None]).remainder_(6)
    return value_B1HW - chroma_B1HW * torch.minimum(k_B3HW, 4 - k_B3HW).clamp_(0, 1)


def _blend(images_BCHW: Tensor, keep_B: Tensor, to_gray_B: Tensor, to_mean_B: Tensor) -> Tensor:
    """keep · image + to_gray · its gray + to_mean · the mean of its gray, clamped."""
    keep, to_gray, to_mean = (weight[:, None, None, None] for weight in (keep_B, to_gray_B, to_mean_B))
    gray_B1HW = gray(images_BCHW)
    mean_B111 = gray_B1HW.mean((2, 3), keepdim=True)
    other_B1HW = torch.addcmul(to_mean * mean_B111, to_gray, gray_B1HW)
    return torch.addcmul(other_B1HW, keep, images_BCHW).clamp_(0, 1)


def jitter(images_BCHW: Tensor, factors_B3: Tensor, turn_B: Tensor, order_B4: Tensor) -> Tensor:
    """Brightness, contrast, saturation (factors; 1 keeps) and hue (a turn; 0 keeps) in each sample's order.

    The first three are blends with black, the mean gray and the gray image, so a step that is a different
    one of them in every sample is one computation. Hue is not, and is computed once: what a sample has before
    its hue step is blended before it, the rest after it, and a step on the other side is a blend that keeps.
    """
    is_hue_BS = order_B4 == HUE
    factor_BS = torch.cat([factors_B3, torch.ones_like(turn_B)[:, None]], dim=1).gather(1, order_B4)
    if images_BCHW.shape[1] == 1:
        return _blend_steps(images_BCHW, factor_BS, order_B4, range(NUM_JITTERS))
    before_BS = is_hue_BS.cumsum(1) == 0
    one = torch.ones_like(factor_BS)
    early_BS, late_BS = torch.where(before_BS, factor_BS, one), torch.where(before_BS, one, factor_BS)
    images_BCHW = _blend_steps(images_BCHW, early_BS, order_B4, range(NUM_JITTERS - 1))
    images_BCHW = shift_hue(images_BCHW, turn_B)
    return _blend_steps(images_BCHW, late_BS, order_B4, range(1, NUM_JITTERS))


def _blend_steps(images_BCHW: Tensor, factor_BS: Tensor, order_BS: Tensor, steps: range) -> Tensor:
    rest_BS = 1 - factor_BS
    to_gray_BS = rest_BS * (order_BS == SATURATION)
    to_mean_BS = rest_BS * (order_BS == CONTRAST)
    for step in steps:
        images_BCHW = _blend(images_BCHW, factor_BS[:, step], to_gray_BS[:, step], to_mean_BS[:, step])
    return images_BCHW


def gray_where(images_BCHW: Tensor, chosen_B: Tensor) -> Tensor:
    return torch.where(chosen_B[:, None, None, None], gray(images_BCHW), images_BCHW)


def solarize_where(images_BCHW: Tensor, chosen_B: Tensor) -> Tensor:
    """The bright half inverted; on 256 levels this is Pillow's threshold of 128."""
    inverted = chosen_B[:, None, None, None] & (images_BCHW >= 0.5)
    return torch.where(inverted, 1 - images_BCHW, images_BCHW)
