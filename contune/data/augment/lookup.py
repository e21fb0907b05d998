"""AutoAugment's operations on the 256 levels of a channel as tables, so that a batch of different ones is one gather.

Every table agrees with torchvision on uint8 to the level.

B: samples, C: channels, P: pixels of an image, L: the 256 levels.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from contune.data.augment.constants import constant, count_to
from contune.data.augment.subpolicies import Op

NUM_LEVELS = 256
TOP_LEVEL = NUM_LEVELS - 1


def histogram(index_BCP: Tensor) -> Tensor:
    """How many pixels of each channel have each level, (B, C, L) int32; `index_BCP` are int64 levels."""
    counts_BCL = torch.zeros(*index_BCP.shape[:2], NUM_LEVELS, dtype=torch.int32, device=index_BCP.device)
    one = constant((1,), index_BCP.device, torch.int32)
    return counts_BCL.scatter_add_(2, index_BCP, one.expand_as(index_BCP))


def posterize(index_BCP: Tensor, bits_B: Tensor) -> Tensor:
    """So many of the 8 bits kept, the others 0."""
    level_L = count_to(NUM_LEVELS, index_BCP.device)
    return level_L - level_L.remainder(torch.exp2(8 - bits_B)[:, None, None])


def solarize(index_BCP: Tensor, threshold_B: Tensor) -> Tensor:
    """Inverted from the threshold on."""
    level_L = count_to(NUM_LEVELS, index_BCP.device)
    return torch.where(level_L >= threshold_B[:, None, None], TOP_LEVEL - level_L, level_L)


def invert(index_BCP: Tensor, magnitude_B: Tensor) -> Tensor:
    return TOP_LEVEL - count_to(NUM_LEVELS, index_BCP.device)


def autocontrast(index_BCP: Tensor, magnitude_B: Tensor) -> Tensor:
    """Each channel's range stretched to 0…255; a channel of a single level stays."""
    low_BC1, high_BC1 = index_BCP.amin(2, keepdim=True).float(), index_BCP.amax(2, keepdim=True).float()
    flat_BC1 = low_BC1 == high_BC1
    scale_BC1 = torch.where(flat_BC1, 1.0, TOP_LEVEL / (high_BC1 - low_BC1))
    offset_BC1 = torch.where(flat_BC1, 0.0, low_BC1)
    level_L = count_to(NUM_LEVELS, index_BCP.device)
    return ((level_L - offset_BC1) * scale_BC1).clamp_(0, TOP_LEVEL).floor_()


def equalize(index_BCP: Tensor, magnitude_B: Tensor) -> Tensor:
    """Levels spread so that their histogram is as flat as it gets; a channel with too few of them stays."""
    counts_BCL = histogram(index_BCP)
    below_BCL = counts_BCL.cumsum(2, dtype=torch.int32).sub_(counts_BCL)
    # Pillow's rule: the pixels of the brightest level do not count.
    step_BC1 = below_BCL.gather(2, index_BCP.amax(2, keepdim=True)) // TOP_LEVEL
    # Whole numbers below 2^24 divided in float32 and rounded down are exact, and faster than in integers.
    table_BCL = (below_BCL + step_BC1 // 2).float().div_(step_BC1.clamp(min=1)).floor_()
    level_L = count_to(NUM_LEVELS, index_BCP.device)
    return torch.where(step_BC1 == 0, level_L, table_BCL.clamp_(max=TOP_LEVEL))


TABLES: dict[Op, Callable[[Tensor, Tensor], Tensor]] = {
    Op.POSTERIZE: posterize,
    Op.SOLARIZE: solarize,
    Op.INVERT: invert,
    Op.AUTOCONTRAST: autocontrast,
    Op.EQUALIZE: equalize,
}
"""From the int64 levels of the channels and the magnitudes to tables that broadcast to (B, C, L)."""


def look_up(index_BCP: Tensor, table: Tensor) -> Tensor:
    return table.expand(*index_BCP.shape[:2], NUM_LEVELS).gather(2, index_BCP)
