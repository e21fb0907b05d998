"""Moving pixels: integer crop and flip as one exact copy of rows, affine maps as one sampling.

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
    """Zero padding on all sides, a crop of the old size from (top, left), then a horizontal flip.

    A row of the result is W neighbouring pixels of a padded image, or of its mirror image: the rows are picked from
    all such windows of both, laid end to end.
    """
    B, C, H, W = images_BCHW.shape
    device = images_BCHW.device
    padded = F.pad(torch.stack([images_BCHW, images_BCHW.flip(3)]), [padding] * 4).contiguous()
    top_B, left_B = start_B2.unbind(1)
    left_B = torch.where(flip_B, 2 * padding - left_B, left_B)
    image_BC = (flip_B * B + count_to(B, device, torch.int64))[:, None] * C + count_to(C, device, torch.int64)
    row_BCH = (image_BC * (H + 2 * padding) + top_B[:, None])[:, :, None] + count_to(H, device, torch.int64)
    window_BCH = row_BCH * (W + 2 * padding) + left_B[:, None, None]
    windows = padded.as_strided((max(0, padded.numel() - W + 1), W), (1, 1))
    return windows.index_select(0, window_BCH.view(-1)).view(B, C, H, W)


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
