"""Colour changes of float images in [0, 1], with a strength for each sample.

The jitter is computed in one of two ways (see grouping.py): step by step with each operation on its own samples, or
all samples at once.

B: samples, C: channels (1 or 3), H, W: height, width, S: steps of the jitter.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from contune.data.augment.constants import constant
from contune.data.augment.grouping import KEEP, can_ask, each_kind, where_chosen

LUMA = (0.2989, 0.587, 0.114)
BRIGHTNESS, CONTRAST, SATURATION, HUE = range(4)
NUM_JITTERS = 4
_KEEPING = (1.0, 1.0, 1.0, 0.0)
"""Strengths that change nothing: three factors and a turn."""


def black(images_BCHW: Tensor) -> Tensor:
    return constant((0.0,), images_BCHW.device).view(1, 1, 1, 1)


def gray(images_BCHW: Tensor) -> Tensor:
    """The luma (B, 1, H, W), with torchvision's weights; a one-channel image is its own."""
    if images_BCHW.shape[1] == 1:
        return images_BCHW
    red, green, blue = (images_BCHW[:, c] * weight for c, weight in enumerate(LUMA))
    return red.add_(green).add_(blue)[:, None]


def mean_gray(images_BCHW: Tensor) -> Tensor:
    return gray(images_BCHW).mean((2, 3), keepdim=True)


OTHERS: dict[int, Callable[[Tensor], Tensor]] = {BRIGHTNESS: black, CONTRAST: mean_gray, SATURATION: gray}
"""What each operation blends an image with."""


def blend(images_BCHW: Tensor, other: Tensor, factor_B: Tensor) -> Tensor:
    """factor · image + (1 - factor) · other, clamped."""
    factor = factor_B[:, None, None, None]
    return torch.addcmul((1 - factor) * other, factor, images_BCHW).clamp_(0, 1)


def shift_hue(images_B3HW: Tensor, turn_B: Tensor) -> Tensor:
    """Hue turned by `turn_B` of the colour circle (-1/2 to 1/2), value and saturation kept.

    With the hue h in sixths of the circle, value V and chroma D = max - min, the channel at offset n
    (5, 3, 1 for red, green, blue) is V - D · clamp(min(k, 4 - k), 0, 1) where k = (n + h) mod 6.
    Arithmetic with masks of 0 and 1, since on a CPU choosing pixel by pixel takes many times as long.
    """
    red, green, blue = images_B3HW.split(1, dim=1)
    value_B1HW, least_B1HW = images_B3HW.amax(1, keepdim=True), images_B3HW.amin(1, keepdim=True)
    chroma_B1HW = value_B1HW - least_B1HW
    # What is below the value at all is 1 when rounded up.
    of_red = 1 - (value_B1HW - red).ceil_()
    of_green = (1 - (value_B1HW - green).ceil_()).mul_(1 - of_red)
    of_blue = 1 - of_red - of_green
    # The hue's distance from that of the brightest channel, then the hue of that channel.
    hue_B1HW = (green - blue).mul_(of_red).add_((blue - red).mul_(of_green)).add_((red - green).mul_(of_blue))
    hue_B1HW.div_(chroma_B1HW.clamp(min=1e-12)).add_(of_green.mul_(2)).add_(of_blue.mul_(4))
    hue_B1HW += 6 * turn_B[:, None, None, None]
    k_B3HW = hue_B1HW + constant((5, 3, 1), images_B3HW.device)[:, None, None]
    k_B3HW.sub_((k_B3HW / 6).floor_().mul_(6))
    below_B3HW = torch.minimum(k_B3HW, 4 - k_B3HW, out=k_B3HW).clamp_(0, 1).mul_(chroma_B1HW)
    return below_B3HW.neg_().add_(value_B1HW)


def jitter(images_BCHW: Tensor, factors_B3: Tensor, turn_B: Tensor, order_B4: Tensor) -> Tensor:
    """Brightness, contrast, saturation (factors; 1 keeps) and hue (a turn; 0 keeps) in each sample's order."""
    strength_BS = torch.cat([factors_B3, turn_B[:, None]], dim=1).gather(1, order_B4)
    take_steps = _one_by_one if can_ask(images_BCHW) else _all_at_once
    return take_steps(images_BCHW, strength_BS, order_B4)


def _one_by_one(images_BCHW: Tensor, strength_BS: Tensor, order_BS: Tensor) -> Tensor:
    """Steps that would keep a sample are left out."""
    keeps_BS = strength_BS == constant(_KEEPING, strength_BS.device)[order_BS]
    if images_BCHW.shape[1] == 1:
        keeps_BS |= order_BS == HUE

    def operate(step: int, kind: int, some_BCHW: Tensor, numbers_B: Tensor) -> Tensor:
        strength_B = strength_BS[:, step].index_select(0, numbers_B)
        operation = kind - 1
        if operation == HUE:
            return shift_hue(some_BCHW, strength_B)
        return blend(some_BCHW, OTHERS[operation](some_BCHW), strength_B)

    return each_kind(images_BCHW, (order_BS + 1).masked_fill_(keeps_BS, KEEP), operate)


def _all_at_once(images_BCHW: Tensor, strength_BS: Tensor, order_BS: Tensor) -> Tensor:
    """A step that is a different blend in every sample is one computation.

    Hue is not a blend, and is computed once: what a sample has before its hue step is blended before it, the rest
    after it, and a step on the other side is a blend that keeps.
    """
    is_hue_BS = order_BS == HUE
    factor_BS = strength_BS.masked_fill(is_hue_BS, 1.0)
    if images_BCHW.shape[1] == 1:
        return _blend_steps(images_BCHW, factor_BS, order_BS, range(NUM_JITTERS))
    before_BS = is_hue_BS.cumsum(1) == 0
    early_BS, late_BS = factor_BS.masked_fill(~before_BS, 1.0), factor_BS.masked_fill(before_BS, 1.0)
    images_BCHW = _blend_steps(images_BCHW, early_BS, order_BS, range(NUM_JITTERS - 1))
    images_BCHW = shift_hue(images_BCHW, (strength_BS * is_hue_BS).sum(1))
    return _blend_steps(images_BCHW, late_BS, order_BS, range(1, NUM_JITTERS))


def _blend_steps(images_BCHW: Tensor, factor_BS: Tensor, order_BS: Tensor, steps: range) -> Tensor:
    for step in steps:
        operation = order_BS[:, step, None, None, None]
        other = black(images_BCHW)
        for code, other_of in OTHERS.items():
            other = torch.where(operation == code, other_of(images_BCHW), other)
        images_BCHW = blend(images_BCHW, other, factor_BS[:, step])
    return images_BCHW


def gray_where(images_BCHW: Tensor, chosen_B: Tensor) -> Tensor:
    return where_chosen(images_BCHW, chosen_B, lambda images: gray(images).expand_as(images))


def solarize_where(images_BCHW: Tensor, chosen_B: Tensor) -> Tensor:
    """The bright half inverted; on 256 levels this is Pillow's threshold of 128."""
    return where_chosen(images_BCHW, chosen_B, lambda images: torch.minimum(images, 1 - images))
