"""AutoAugment for a batch: each sample has its own sub-policy, signs and chances.

A step computes every kind of operation for the whole batch with parameters under which all but the sample's
own one keep the image: a blend of magnitude 0, the table of the identity, the identity matrix. So nothing is
grouped by operation, and nothing waits for the device.

B: samples, S: the two steps, C: channels, H, W: height, width, P: pixels, L: levels.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from contune.data.augment.checks import check_image, check_integer, check_probability
from contune.data.augment.constants import constant
from contune.data.augment.geometry import crop_flip, draw_crop_flip, sample_affine
from contune.data.augment.levels import blend_levels
from contune.data.augment.lookup import (
    NUM_LEVELS,
    TOP_LEVEL,
    autocontrast_table,
    equalize_table,
    histogram,
    threshold_table,
)
from contune.data.augment.policy import Params
from contune.data.augment.resample import resize
from contune.data.augment.subpolicies import LAST_SIGNED, SUB_POLICIES, Op, sub_policy_table


def choose_steps(
    sub_policy_B: Tensor, chance_BS: Tensor, negative_BS: Tensor, image_size: int
) -> tuple[Tensor, Tensor]:
    """Operations and magnitudes (B, 2): a step happens where its chance is below its probability."""
    op, probability, magnitude = sub_policy_table(image_size, sub_policy_B.device)[sub_policy_B].unbind(2)
    negated = torch.where(negative_BS & (op <= LAST_SIGNED), -magnitude, magnitude)
    happens = chance_BS < probability
    return torch.where(happens, op, Op.IDENTITY).long(), torch.where(happens, negated, 0.0)


def inverse_matrices(op_BS: Tensor, magnitude_BS: Tensor, image_size: int) -> Tensor:
    """(B, S, 2, 3) from output to input pixels, about the centre; the identity for what moves nothing.

    torchvision shears about the top left corner and rotates counter-clockwise.
    """
    codes = constant((Op.SHEAR_X, Op.SHEAR_Y, Op.TRANSLATE_X, Op.TRANSLATE_Y, Op.ROTATE), op_BS.device)
    amounts = magnitude_BS[..., None] * (op_BS[..., None] == codes)
    shear_x, shear_y, translate_x, translate_y, degrees = amounts.unbind(-1)
    angle = torch.deg2rad(degrees)
    cos, sin = angle.cos(), angle.sin()
    half = image_size / 2
    entries = [
        *(cos, shear_x - sin, half * shear_x - translate_x),
        *(shear_y + sin, cos, half * shear_y - translate_y),
    ]
    return torch.stack(entries, dim=2).view(*op_BS.shape, 2, 3)


def threshold_tables(op_BS: Tensor, magnitude_BS: Tensor) -> Tensor:
    """Tables (B, S, L) of posterize, solarize and invert; the identity for every other operation."""
    bits_BS = torch.where(op_BS == Op.POSTERIZE, magnitude_BS, 8.0)
    threshold_BS = torch.where(op_BS == Op.SOLARIZE, magnitude_BS, NUM_LEVELS)
    return threshold_table(bits_BS, threshold_BS * (op_BS != Op.INVERT))


def map_levels(levels_BCHW: Tensor, table_BL: Tensor, autocontrasted_B: Tensor, equalized_B: Tensor) -> Tensor:
    """Each channel's levels by the sample's table, or stretched or equalized where that is asked for."""
    levels_BCP = levels_BCHW.flatten(2)
    index_BCP = levels_BCP.long()
    low_BC, high_BC = levels_BCP.aminmax(dim=2)
    stretch_BCL = autocontrast_table(low_BC, high_BC)
    spread_BCL = equalize_table(histogram(index_BCP), high_BC)
    table_BCL = torch.where(autocontrasted_B[:, None, None], stretch_BCL, table_BL[:, None])
    table_BCL = torch.where(equalized_B[:, None, None], spread_BCL, table_BCL)
    return table_BCL.gather(2, index_BCP).view_as(levels_BCHW)


def autoaugment_levels(levels_BCHW: Tensor, op_BS: Tensor, magnitude_BS: Tensor) -> Tensor:
    """All steps on whole-number levels in float32; equal to torchvision on uint8."""
    codes = constant((Op.CONTRAST, Op.COLOR, Op.SHARPNESS, Op.AUTOCONTRAST, Op.EQUALIZE), op_BS.device)
    is_op_BS5 = op_BS[..., None] == codes
    blends_BS = (op_BS >= Op.BRIGHTNESS) & (op_BS <= Op.SHARPNESS)
    if levels_BCHW.shape[1] == 1:  # torchvision's saturation keeps a gray image
        blends_BS &= op_BS != Op.COLOR
    blend_BS = magnitude_BS * blends_BS
    table_BSL = threshold_tables(op_BS, magnitude_BS)
    inverse_BS23 = inverse_matrices(op_BS, magnitude_BS, levels_BCHW.shape[-1])
    for step in range(op_BS.shape[1]):
        to_mean_B, to_gray_B, to_smooth_B, autocontrasted_B, equalized_B = is_op_BS5[:, step].unbind(1)
        levels_BCHW = blend_levels(levels_BCHW, blend_BS[:, step], to_mean_B, to_gray_B, to_smooth_B)
        levels_BCHW = map_levels(levels_BCHW, table_BSL[:, step], autocontrasted_B, equalized_B)
        levels_BCHW = sample_affine(levels_BCHW, inverse_BS23[:, step], "nearest")
    return levels_BCHW


@dataclass(frozen=True, kw_only=True, eq=False)
class AutoAugment:
    """Crop with padding and flip, then the CIFAR-10 policy: the supervised recipe of the paper's authors."""

    image_size: int
    channels: int
    padding: int = 4
    """Zeros added on every side before the crop, in pixels."""
    flip: float = 0.5
    """Probability of a horizontal flip."""

    def __post_init__(self) -> None:
        check_image(self.image_size, self.channels, smallest=3)
        check_integer("padding", self.padding, 0)
        check_probability("flip", self.flip)

    def draw(self, num_samples: int, generator: torch.Generator) -> Params:
        params = draw_crop_flip(num_samples, self.padding, self.flip, generator)
        device, shape = generator.device, (num_samples, 2)
        sub_policy_B = torch.randint(len(SUB_POLICIES), (num_samples,), generator=generator, device=device)
        chance_BS = torch.rand(shape, generator=generator, device=device)
        negative_BS = torch.rand(shape, generator=generator, device=device) < 0.5
        op_BS, magnitude_BS = choose_steps(sub_policy_B, chance_BS, negative_BS, self.image_size)
        return params | {"op": op_BS, "magnitude": magnitude_BS}

    def apply(self, images_BCHW: Tensor, params: Params) -> Tensor:
        images_BCHW = resize(images_BCHW, self.image_size)
        images_BCHW = crop_flip(images_BCHW, params["crop_start"], params["flip"], self.padding)
        return autoaugment_levels(images_BCHW.float(), params["op"], params["magnitude"]).div_(TOP_LEVEL)
