"""Operations on the 256 levels of a channel as tables, so that a batch of different ones is one gather.

Levels are whole numbers 0…255 in float32; every table agrees with torchvision on uint8 to the level.

B: samples, C: channels, P: pixels of an image, L: the 256 levels.
"""

import torch
from torch import Tensor

from contune.data.augment.constants import constant, count_to

NUM_LEVELS = 256
TOP_LEVEL = NUM_LEVELS - 1


def histogram(index_BCP: Tensor) -> Tensor:
    """How many pixels of each channel have each level, (B, C, L) int32; `index_BCP` are int64 levels."""
    B, C, _ = index_BCP.shape
    device = index_BCP.device
    row_BC1 = count_to(B * C, device, torch.int64).view(B, C, 1)
    flat = (index_BCP + row_BC1 * NUM_LEVELS).view(-1)
    counts = torch.zeros(B * C * NUM_LEVELS, dtype=torch.int32, device=device)
    counts.scatter_add_(0, flat, constant((1,), device, torch.int32).expand_as(flat))
    return counts.view(B, C, NUM_LEVELS)


def threshold_table(bits: Tensor, threshold: Tensor) -> Tensor:
    """Posterized to `bits` bits below `threshold`, inverted from there on; the shape of both, then L.

    8 bits posterize nothing, a threshold of 256 inverts nothing, one of 0 everything.
    """
    level_L = count_to(NUM_LEVELS, bits.device)
    posterized = level_L - level_L.remainder(torch.exp2(8 - bits)[..., None])
    return torch.where(level_L >= threshold[..., None], TOP_LEVEL - level_L, posterized)


def autocontrast_table(low_BC: Tensor, high_BC: Tensor) -> Tensor:
    """Stretches low…high to 0…255; a channel of a single level stays."""
    level_L = count_to(NUM_LEVELS, low_BC.device)
    flat_BC = low_BC == high_BC
    scale_BC = torch.where(flat_BC, 1.0, TOP_LEVEL / (high_BC - low_BC))
    offset_BC = torch.where(flat_BC, 0.0, low_BC)
    return ((level_L - offset_BC[..., None]) * scale_BC[..., None]).clamp_(0, TOP_LEVEL).trunc_()


def equalize_table(counts_BCL: Tensor, high_BC: Tensor) -> Tensor:
    """Levels spread so that their histogram is as flat as it gets; a channel with too few of them stays."""
    below_BCL = counts_BCL.cumsum(2, dtype=torch.int32) - counts_BCL
    # Pillow's rule: the pixels of the brightest level do not count.
    step_BC1 = below_BCL.gather(2, high_BC.long()[..., None]) // TOP_LEVEL
    table_BCL = (below_BCL + step_BC1 // 2) // step_BC1.clamp(min=1)
    level_L = count_to(NUM_LEVELS, counts_BCL.device)
    return torch.where(step_BC1 == 0, level_L, table_BCL.clamp_(max=TOP_LEVEL))
