"""AutoAugment's operations that move pixels, as affine maps.

torchvision shears about the top left corner and rotates about the centre, to the nearest pixel.

B: samples.
"""

import torch
from torch import Tensor

from contune.data.augment.constants import constant
from contune.data.augment.geometry import sample_affine
from contune.data.augment.subpolicies import Op


def inverse_matrices(op_B: Tensor, magnitude_B: Tensor, *, shear_about: float, turn_about: float) -> Tensor:
    """(B, 2, 3) from output to input pixels, from the image's centre; the identity for what moves nothing.

    Positive magnitudes move the content right, down and counter-clockwise. A shear, or a rotation, leaves the point
    in its place that lies so many pixels right of the centre and below it.
    """
    codes = constant((Op.SHEAR_X, Op.SHEAR_Y, Op.TRANSLATE_X, Op.TRANSLATE_Y, Op.ROTATE), op_B.device)
    amounts = magnitude_B[:, None] * (op_B[:, None] == codes)
    shear_x, shear_y, translate_x, translate_y, degrees = amounts.unbind(1)
    angle = torch.deg2rad(degrees)
    cos, sin = angle.cos(), angle.sin()
    entries = [
        *(cos, shear_x - sin, -shear_about * shear_x - translate_x + turn_about * (1 - cos + sin)),
        *(shear_y + sin, cos, -shear_about * shear_y - translate_y + turn_about * (1 - cos - sin)),
    ]
    return torch.stack(entries, dim=1).view(-1, 2, 3)


def move(levels_BCHW: Tensor, op_B: Tensor, magnitude_B: Tensor) -> Tensor:
    """As torchvision does."""
    corner = -levels_BCHW.shape[-1] / 2
    inverse_B23 = inverse_matrices(op_B, magnitude_B, shear_about=corner, turn_about=0.0)
    return sample_affine(levels_BCHW, inverse_B23, "nearest")
