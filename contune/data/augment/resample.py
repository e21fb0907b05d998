"""Resizing: of whole images, and of a different box in every sample, both antialiased.

B: samples, C: channels, H, W: input height, width, O: output side, I: input side along one axis.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from contune.data.augment.constants import constant, count_to
from contune.data.augment.policy import Params, draw_uniform

Interpolation = Literal["bilinear", "bicubic"]
_CROP_ATTEMPTS = 10


def resize(images_BCHW: Tensor, size: int) -> Tensor:
    """uint8 images squashed to (size, size), bilinear with antialiasing, rounded back to levels."""
    if images_BCHW.shape[-2:] == (size, size):
        return images_BCHW
    resized = F.interpolate(images_BCHW.float(), size=(size, size), mode="bilinear", antialias=True)
    return resized.round_().to(torch.uint8)


def draw_crop(
    num_samples: int, scale: tuple[float, float], ratio: tuple[float, float], generator: torch.Generator
) -> Params:
    """What torchvision's RandomResizedCrop draws: attempts at a share of the area and an aspect ratio.

    Which attempt fits depends on the image's size, so `crop_boxes` decides that.
    """
    log_low, log_high = torch.tensor(ratio).log().tolist()
    shape = (num_samples, _CROP_ATTEMPTS)
    return {
        "crop_area": draw_uniform(shape, *scale, generator),
        "crop_aspect": draw_uniform(shape, log_low, log_high, generator).exp_(),
        "crop_position": torch.rand(num_samples, 2, generator=generator, device=generator.device),
    }


def _largest_centre_box(height: int, width: int, ratio: tuple[float, float]) -> tuple[int, int]:
    if width / height < ratio[0]:
        return max(1, round(width / ratio[0])), width
    if width / height > ratio[1]:
        return height, max(1, round(height * ratio[1]))
    return height, width


def crop_boxes(params: Params, height: int, width: int, ratio: tuple[float, float]) -> tuple[Tensor, Tensor]:
    """Start (top, left) and size (height, width) of each sample's box: its first attempt that fits."""
    area_BA = params["crop_area"] * (height * width)
    aspect_BA = params["crop_aspect"]
    sides_BA2 = torch.stack([area_BA / aspect_BA, area_BA * aspect_BA], dim=2).sqrt_().round_()
    limit_2 = constant((height, width), area_BA.device)
    fits_BA = ((sides_BA2 > 0) & (sides_BA2 <= limit_2)).all(2)
    first_B = fits_BA.int().argmax(1)
    attempt_B2 = sides_BA2.gather(1, first_B[:, None, None].expand(-1, 1, 2))[:, 0]
    centre_2 = constant(_largest_centre_box(height, width, ratio), area_BA.device)
    some_B1 = fits_BA.any(1, keepdim=True)
    size_B2 = torch.where(some_B1, attempt_B2, centre_2)
    room_B2 = limit_2 - size_B2
    anywhere_B2 = (params["crop_position"] * (room_B2 + 1)).floor()
    return torch.where(some_B1, anywhere_B2, (room_B2 / 2).floor()), size_B2


def _triangle(distance: Tensor) -> Tensor:
    return (1 - distance).clamp_(min=0)


def _cubic(distance: Tensor) -> Tensor:
    """Keys' kernel with a = -1/2: what Pillow, and torch with antialiasing, call bicubic.

    One polynomial up to a distance of 1, another up to 2. Both are 0 at 1, and the second at 2, so that each may be
    taken at the nearest point of its own interval and the two added.
    """
    near, far = distance.clamp(max=1), distance.clamp(1, 2)
    within_1 = near.mul(1.5).sub_(2.5).mul_(near).mul_(near).add_(1)
    within_2 = far.mul(-0.5).add_(2.5).mul_(far).sub_(4).mul_(far).add_(2)
    return within_1.add_(within_2)


def box_weights(
    start_B: Tensor, size_B: Tensor, mirror_B: Tensor, num_in: int, num_out: int, interpolation: Interpolation
) -> Tensor:
    """Weights (B, O, I) that resample the pixels start..start+size-1 of one axis to `num_out` pixels."""
    device = start_B.device
    step_B11 = (size_B / num_out)[:, None, None]
    out_O = count_to(num_out, device)
    out_BO = torch.where(mirror_B[:, None], num_out - 1 - out_O, out_O)
    centre_BO1 = start_B[:, None, None] + step_B11 * (out_BO[:, :, None] + 0.5)
    in_I = count_to(num_in, device)
    # Shrinking widens the kernel (antialiasing); enlarging leaves it as it is.
    distance_BOI = ((in_I + 0.5 - centre_BO1) / step_B11.clamp(min=1)).abs_()
    kernel_BOI = _cubic(distance_BOI) if interpolation == "bicubic" else _triangle(distance_BOI)
    inside_BI = (in_I >= start_B[:, None]) & (in_I < (start_B + size_B)[:, None])
    weights_BOI = kernel_BOI.mul_(inside_BI[:, None].float())
    return weights_BOI.div_(weights_BOI.sum(2, keepdim=True))


def apply_separable(images_BCHW: Tensor, rows_BOH: Tensor, columns_BOW: Tensor) -> Tensor:
    """Each sample's rows and columns mixed by its own weights: out = rows · image · columnsᵀ.

    Never in half precision, whatever autocast says around it. TF32, where allowed, costs up to 1/255.
    """
    C, H = images_BCHW.shape[1:3]
    with torch.autocast(images_BCHW.device.type, enabled=False):
        wide_BCHO = torch.bmm(images_BCHW.flatten(1, 2), columns_BOW.mT).view(-1, C, H, columns_BOW.shape[1])
        return torch.matmul(rows_BOH[:, None], wide_BCHO)


def resized_crop(
    images_BCHW: Tensor,
    start_B2: Tensor,
    size_B2: Tensor,
    mirror_B: Tensor,
    *,
    size: int,
    interpolation: Interpolation,
) -> Tensor:
    """Each sample's own box resized to (size, size), mirrored left to right where `mirror_B`."""
    H, W = images_BCHW.shape[-2:]
    # Both axes in one computation; the longer one's pixels include the shorter one's.
    rows_BOI, columns_BOI = box_weights(
        start_B2.mT.flatten(),
        size_B2.mT.flatten(),
        torch.cat([torch.zeros_like(mirror_B), mirror_B]),
        max(H, W),
        size,
        interpolation,
    ).chunk(2)
    return apply_separable(images_BCHW, rows_BOI[..., :H], columns_BOI[..., :W])
