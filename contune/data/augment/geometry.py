"""Moving pixels: integer crop and flip as one exact gather, affine maps as one sampling.

B: samples, C: channels, H, W: height, width.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from contune.data.augment.constants import constant, count_to
from contune.data.augment.policy import Params, draw_chance


def draw_crop_flip(num_samples: int, padding: int, flip: float, generator: torch.Generator) -> Params:
    """Where a crop of the image's own size starts in the padded image, and whether it is mirrored."""
    start_B2 = torch.randint(2 * padding + 1, (num_samples, 2), generator=generator, device=generator.device)
    return {"crop_start": start_B2, "flip": draw_chance(num_samples, flip, generator)}


def crop_flip(images_BCHW: Tensor, start_B2: Tensor, flip_B: Tensor, padding: int) -> Tensor:
    """Zero padding on all sides, a crop of the old size from (top, left), then a horizontal flip."""
    B, C, H, W = images_BCHW.shape
    device = images_BCHW.device
    padded = F.pad(images_BCHW, [padding] * 4)
    y_H, x_W = count_to(H, device, torch.int64), count_to(W, device, torch.int64)
    rows_BH = start_B2[:, :1] + y_H
    columns_BW = start_B2[:, 1:] + torch.where(flip_B[:, None], W - 1 - x_W, x_W)
    index_BHW = rows_BH[:, :, None] * (W + 2 * padding) + columns_BW[:, None, :]
    index_BCP = index_BHW.view(B, 1, H * W).expand(B, C, H * W)
    return padded.flatten(2).gather(2, index_BCP).view(B, C, H, W)


def sample_affine(images_BCHW: Tensor, inverse_B23: Tensor, mode: str) -> Tensor:
    """The image at `inverse_B23` of every output pixel; zero outside. `mode`: nearest or bilinear.

    The matrix maps output (x, y, 1) to input (x, y) in pixels from the image's centre, as torchvision's does.
    """
    H, W = images_BCHW.shape[-2:]
    device = images_BCHW.device
    # Sums of products rather than a matrix product: TF32 would move pixels.
    scaled_B23 = inverse_B23 / constant((0.5 * W, 0.5 * H), device)[:, None]
    x_W1 = (count_to(W, device) - (W - 1) / 2)[:, None]
    y_H1 = (count_to(H, device) - (H - 1) / 2)[:, None]
    along_x_BW2 = x_W1 * scaled_B23[:, None, :, 0] + scaled_B23[:, None, :, 2]
    along_y_BH2 = y_H1 * scaled_B23[:, None, :, 1]
    grid_BHW2 = along_x_BW2[:, None] + along_y_BH2[:, :, None]
    return F.grid_sample(images_BCHW, grid_BHW2, mode=mode, padding_mode="zeros", align_corners=False)
