"""Sampling with cubic B-splines, as `scipy.ndimage.affine_transform` does by default, on levels.

A spline through the pixels has coefficients that are not the pixels: a linear system along each axis, whose inverse
is applied as a matrix. Beyond the outermost pixels the image is mirrored for the coefficients, and 0 in the result.

B: samples, C: channels, H, W: height, width, N: pixels along one axis.
"""

from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from contune.data.augment.constants import count_to
from contune.data.augment.lookup import TOP_LEVEL

_MARGIN = 2
"""Coefficients needed beyond the outermost pixel."""


@cache
@torch.inference_mode(False)
def to_coefficients(num: int, device: torch.device) -> Tensor:
    """(N, N): the inverse of taking 2/3 of a coefficient and 1/6 of each neighbour, mirrored at the ends."""
    pixels_NN = 2 / 3 * torch.eye(num, dtype=torch.float64)
    for i in range(num):
        for neighbour in (abs(i - 1), num - 1 - abs(num - 2 - i)):
            pixels_NN[i, neighbour] += 1 / 6
    return pixels_NN.inverse().float().contiguous().to(device)  # an inverse lies in memory by columns


def _pairs(position: Tensor) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Two places between coefficients and their weights, in which a linear lookup gives a B-spline's four terms.

    Two neighbours with weights v and w are (v + w) times the linear interpolation at w / (v + w) between them:
    the way of Sigg and Hadwiger, "Fast third-order texture filtering", GPU Gems 2, chapter 20.
    """
    left = position.floor()
    t = position - left
    before = (1 - t).pow(3) / 6
    after = t.pow(3) / 6
    first = before + 2 / 3 - t * t + 3 * after  # with the coefficient at `left`
    second = 1 - first
    return (left - before / first, first), (left + 1 + after / second, second)


def sample_spline(levels_BCHW: Tensor, inverse_B23: Tensor) -> Tensor:
    """The image at `inverse_B23` (see `sample_affine`) of every output pixel, rounded to levels; 0 outside."""
    H, W = levels_BCHW.shape[-2:]
    device = levels_BCHW.device
    with torch.autocast(device.type, enabled=False):
        coefficients = to_coefficients(H, device) @ levels_BCHW.float() @ to_coefficients(W, device).mT
    coefficients = F.pad(coefficients, [_MARGIN] * 4, mode="reflect")
    x_W, y_H1 = count_to(W, device) - (W - 1) / 2, (count_to(H, device) - (H - 1) / 2)[:, None]
    a, b, c, d, e, f = inverse_B23.flatten(1)[:, :, None, None].unbind(1)
    # In this order what is meant to cancel does, so that a row a shear leaves alone keeps its outermost pixels.
    x_BHW, y_BHW = a * x_W + (b * y_H1 + c) + (W - 1) / 2, e * y_H1 + (d * x_W + f) + (H - 1) / 2
    inside_BHW = (x_BHW >= 0) & (x_BHW <= W - 1) & (y_BHW >= 0) & (y_BHW <= H - 1)
    result = torch.zeros_like(levels_BCHW)
    for x_at, x_weight in _pairs(x_BHW):
        for y_at, y_weight in _pairs(y_BHW):
            grid = torch.stack([_normal(x_at, W), _normal(y_at, H)], dim=3)
            terms = F.grid_sample(coefficients, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
            result.addcmul_((x_weight * y_weight)[:, None], terms)
    return result.add_(0.5).floor_().clamp_(0, TOP_LEVEL).mul_(inside_BHW[:, None])


def _normal(position: Tensor, num: int) -> Tensor:
    """A pixel's number to the coordinate that grid_sample gives it in the padded image."""
    return (position + _MARGIN + 0.5) / (num / 2 + _MARGIN) - 1
