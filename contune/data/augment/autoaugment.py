"""Crop and flip, and AutoAugment: the CIFAR-10 policy, equal to torchvision's on uint8.

Each sample has its own sub-policy, signs and chances. torchvision lists the 25 sub-policies of two operations each; the
paper uses them on every data set. Levels are whole numbers 0…255, truncated after every step as torchvision does on
uint8.

B: samples, S: the two steps, C: channels, H, W: height, width, P: pixels of an image, L: the 256 levels.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from itertools import chain

import torch
from torch import Tensor

from contune.data.augment import ops
from contune.data.augment.ops import TOP_LEVEL, Params, Policy
from contune.settings import ranged

# ---------------------------------------------------------------------------- the policy's table


Op = IntEnum(
    "Op",
    "IDENTITY SHEAR_X SHEAR_Y TRANSLATE_X TRANSLATE_Y ROTATE "
    "BRIGHTNESS CONTRAST COLOR SHARPNESS "
    "POSTERIZE SOLARIZE INVERT AUTOCONTRAST EQUALIZE",
    start=0,
)
"""Grouped, so that a comparison tells a group: geometry, blends (both signed), then tables."""
LAST_MOVE, LAST_SIGNED = Op.ROTATE, Op.SHARPNESS
NUM_SUB_POLICIES = 25


@cache
@torch.inference_mode(False)
def sub_policy_table(image_size: int, device: torch.device) -> Tensor:
    """(25, 2, 3): operation, probability and magnitude of both steps of each sub-policy; 0 where there is none.

    A magnitude is a slope, whole pixels, degrees, a number of bits, a level or a blend's excess over 1.
    """
    from contune.device import torchvision  # takes a second to import

    ops_by_name = {op.name.replace("_", ""): op for op in Op}
    policy = torchvision.transforms.AutoAugment(torchvision.transforms.AutoAugmentPolicy.CIFAR10)
    magnitudes = policy._augmentation_space(10, (image_size, image_size))
    rows = []
    for name, probability, bin_index in chain.from_iterable(policy.policies):
        magnitude = 0.0 if bin_index is None else float(magnitudes[name][0][bin_index])
        if name.startswith("Translate"):
            magnitude = int(magnitude)
        rows.append((ops_by_name[name.upper()], probability, magnitude))
    return torch.tensor(rows, dtype=torch.float32, device=device).view(NUM_SUB_POLICIES, 2, 3)


def choose_steps(
    sub_policy_B: Tensor, chance_BS: Tensor, negative_BS: Tensor, image_size: int
) -> tuple[Tensor, Tensor]:
    """Operations and magnitudes (B, 2): a step happens where its chance is below its probability."""
    op, probability, magnitude = sub_policy_table(image_size, sub_policy_B.device)[sub_policy_B].unbind(2)
    negated = torch.where(negative_BS & (op <= LAST_SIGNED), -magnitude, magnitude)
    happens = chance_BS < probability
    return torch.where(happens, op, Op.IDENTITY).long(), torch.where(happens, negated, 0.0)


# ---------------------------------------------------------------------------- blends
# The order of the additions is torchvision's, since a sum just under a whole number is truncated.


def gray_levels(levels_BCHW: Tensor) -> Tensor:
    return levels_BCHW if levels_BCHW.shape[1] == 1 else ops.gray(levels_BCHW).floor_()


def smooth(levels_BCHW: Tensor) -> Tensor:
    """A 3×3 mean whose center weighs 5 of 13, rounded; the outermost pixels stay."""
    three = (levels_BCHW[..., :-2] + levels_BCHW[..., 1:-1]).add_(levels_BCHW[..., 2:])
    nine = (three[..., :-2, :] + three[..., 1:-1, :]).add_(three[..., 2:, :])
    smoothed = levels_BCHW.clone()
    smoothed[..., 1:-1, 1:-1] = nine.add_(levels_BCHW[..., 1:-1, 1:-1], alpha=4).div_(13).round_()
    return smoothed


BLENDED_WITH: dict[Op, Callable[[Tensor], Tensor | float]] = {
    Op.BRIGHTNESS: lambda levels_BCHW: 0.0,
    Op.CONTRAST: lambda levels_BCHW: gray_levels(levels_BCHW).mean((2, 3), keepdim=True),
    Op.COLOR: gray_levels,
    Op.SHARPNESS: smooth,
}


def blend(levels_BCHW: Tensor, other: Tensor | float, magnitude_B: Tensor) -> Tensor:
    """(1 + magnitude) · levels - magnitude · other, clamped and truncated; a magnitude of 0 keeps the image."""
    magnitude = magnitude_B[:, None, None, None]
    blended = (levels_BCHW * (1 + magnitude)).sub_(other * magnitude)
    return blended.clamp_(0, TOP_LEVEL).floor_()


# ---------------------------------------------------------------------------- tables
# Operations on the levels of a channel as tables, so that a batch of different ones is one gather.


def autocontrast(level_L: Tensor, index_BCP: Tensor, magnitude_B: Tensor) -> Tensor:
    """Stretches each channel's range to 0…255; a channel of a single level stays."""
    low_BC1, high_BC1 = index_BCP.amin(2, keepdim=True).float(), index_BCP.amax(2, keepdim=True).float()
    flat_BC1 = low_BC1 == high_BC1
    scale_BC1 = torch.where(flat_BC1, 1.0, TOP_LEVEL / (high_BC1 - low_BC1))
    offset_BC1 = torch.where(flat_BC1, 0.0, low_BC1)
    return ((level_L - offset_BC1) * scale_BC1).clamp_(0, TOP_LEVEL).floor_()


def equalize(level_L: Tensor, index_BCP: Tensor, magnitude_B: Tensor) -> Tensor:
    """Flattens each channel's histogram; a channel with too few levels stays."""
    counts_BCL = torch.zeros(*index_BCP.shape[:2], ops.NUM_LEVELS, dtype=torch.int32, device=index_BCP.device)
    one = ops.constant((1,), index_BCP.device, torch.int32)
    counts_BCL.scatter_add_(2, index_BCP, one.expand_as(index_BCP))
    below_BCL = counts_BCL.cumsum(2, dtype=torch.int32).sub_(counts_BCL)
    # Pillow's rule: the pixels of the brightest level do not count.
    step_BC1 = below_BCL.gather(2, index_BCP.amax(2, keepdim=True)) // TOP_LEVEL
    # Whole numbers below 2^24 divided in float32 and rounded down are exact, and faster than in integers.
    table_BCL = (below_BCL + step_BC1 // 2).float().div_(step_BC1.clamp(min=1)).floor_()
    return torch.where(step_BC1 == 0, level_L, table_BCL.clamp_(max=TOP_LEVEL))


TABLES: dict[Op, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    # The highest bits of the 8 are kept, and levels from the threshold on are inverted.
    Op.POSTERIZE: lambda level_L, _, bits_B: level_L - level_L.remainder(torch.exp2(8 - bits_B)[:, None, None]),
    Op.SOLARIZE: lambda level_L, _, from_B: torch.where(level_L >= from_B[:, None, None], TOP_LEVEL - level_L, level_L),
    Op.INVERT: lambda level_L, *_: TOP_LEVEL - level_L,
    Op.AUTOCONTRAST: autocontrast,
    Op.EQUALIZE: equalize,
}
"""From all levels, the int64 levels of the channels and the magnitudes to tables that broadcast to (B, C, L)."""


def look_up(index_BCP: Tensor, table: Tensor) -> Tensor:
    return table.expand(*index_BCP.shape[:2], ops.NUM_LEVELS).gather(2, index_BCP)


# ---------------------------------------------------------------------------- moves


def move(levels_BCHW: Tensor, op_B: Tensor, magnitude_B: Tensor) -> Tensor:
    """Shears, translations and rotations, to the nearest pixel; samples with any other operation stay.

    Positive magnitudes move the content right, down and counterclockwise. torchvision shears about the top left corner
    and rotates about the center.
    """
    corner = -levels_BCHW.shape[-1] / 2
    codes = ops.constant((Op.SHEAR_X, Op.SHEAR_Y, Op.TRANSLATE_X, Op.TRANSLATE_Y, Op.ROTATE), op_B.device)
    amounts = magnitude_B[:, None] * (op_B[:, None] == codes)
    shear_x, shear_y, translate_x, translate_y, degrees = amounts.unbind(1)
    angle = torch.deg2rad(degrees)
    cos, sin = angle.cos(), angle.sin()
    entries = [
        *(cos, shear_x - sin, -corner * shear_x - translate_x),
        *(shear_y + sin, cos, -corner * shear_y - translate_y),
    ]
    inverse_B23 = torch.stack(entries, dim=1).view(-1, 2, 3)
    return ops.sample_affine(levels_BCHW, inverse_B23, "nearest")


# ---------------------------------------------------------------------------- all steps


def one_by_one(levels_BCHW: Tensor, op_BS: Tensor, magnitude_BS: Tensor) -> Tensor:
    """Each operation on its own samples, as uint8 levels; all operations that move pixels count as one.

    In each step the images are sorted by operation, so that one is a slice. Their order is restored at the end.
    """
    levels_BCHW, row_B = levels_BCHW.to(torch.uint8), torch.arange(len(op_BS))
    level_L = ops.count_to(ops.NUM_LEVELS, levels_BCHW.device)
    for op_B, magnitude_B in zip(op_BS.unbind(1), magnitude_BS.unbind(1), strict=True):
        kind_B = op_B.masked_fill((op_B > Op.IDENTITY) & (op_B <= LAST_MOVE), LAST_MOVE).index_select(0, row_B)
        order_B = kind_B.argsort()
        levels_BCHW, row_B = levels_BCHW.index_select(0, order_B), row_B.index_select(0, order_B)
        sizes = kind_B.bincount().tolist()
        for op, some_BCHW, rows in zip(Op, levels_BCHW.split(sizes), row_B.split(sizes), strict=False):
            if op == Op.IDENTITY or not len(rows):
                continue
            magnitude = magnitude_B.index_select(0, rows)
            if op in TABLES:
                index_BCP = some_BCHW.flatten(2).long()
                table = TABLES[op](level_L, index_BCP, magnitude)
                changed = look_up(index_BCP, table.to(torch.uint8)).view_as(some_BCHW)
            elif op in BLENDED_WITH:
                levels = some_BCHW.float()
                changed = blend(levels, BLENDED_WITH[op](levels), magnitude).int()  # on the way to uint8 this is faster
            else:
                changed = move(some_BCHW.float(), op_B.index_select(0, rows), magnitude).int()
            some_BCHW.copy_(changed)
    return levels_BCHW.index_select(0, row_B.argsort()).float()


def all_at_once(levels_BCHW: Tensor, op_BS: Tensor, magnitude_BS: Tensor) -> Tensor:
    """A blend, a table and a move of every sample in every step, on float32 levels.

    A sample without the operation has a magnitude of 0, the identity table or the identity matrix.
    """
    levels_BCHW, level_L = levels_BCHW.float(), ops.count_to(ops.NUM_LEVELS, levels_BCHW.device)
    blend_BS = magnitude_BS * ((op_BS > LAST_MOVE) & (op_BS <= LAST_SIGNED))
    for step in range(op_BS.shape[1]):
        op_B, magnitude_B = op_BS[:, step], magnitude_BS[:, step]
        other = levels_BCHW.new_zeros(())
        for op, other_of in BLENDED_WITH.items():
            other = torch.where((op_B == op)[:, None, None, None], other_of(levels_BCHW), other)
        levels_BCHW = blend(levels_BCHW, other, blend_BS[:, step])
        index_BCP = levels_BCHW.flatten(2).long()
        table = level_L
        for op, table_of in TABLES.items():
            table = torch.where((op_B == op)[:, None, None], table_of(level_L, index_BCP, magnitude_B), table)
        levels_BCHW = look_up(index_BCP, table).view_as(levels_BCHW)
        levels_BCHW = move(levels_BCHW, op_B, magnitude_B)
    return levels_BCHW


def autoaugment_levels(levels_BCHW: Tensor, op_BS: Tensor, magnitude_BS: Tensor) -> Tensor:
    """All steps on levels, uint8 or whole numbers in float32, to float32."""
    if levels_BCHW.shape[1] == 1:  # torchvision's saturation keeps a gray image
        op_BS = op_BS.masked_fill(op_BS == Op.COLOR, Op.IDENTITY)
    take_steps = one_by_one if ops.host_can_read(levels_BCHW) else all_at_once
    return take_steps(levels_BCHW, op_BS, magnitude_BS)


# ---------------------------------------------------------------------------- the policies


@dataclass(frozen=True, kw_only=True, eq=False)
class CropFlip(Policy):
    """A random crop of the padded image and a horizontal flip."""

    padding: int = ranged(4, low=0)
    """Zeros added on every side before the crop, in pixels."""
    flip: float = ranged(0.5, low=0, high=1)
    """Probability of a horizontal flip; 0 where mirroring changes the class."""

    def draw(self, num_samples: int, generator: torch.Generator) -> Params:
        shape = (num_samples, 2)
        start_B2 = torch.randint(2 * self.padding + 1, shape, generator=generator, device=generator.device)
        return {"crop_start": start_B2, "flip": ops.draw_chance(num_samples, self.flip, generator)}

    def apply(self, images_BCHW: Tensor, params: Params) -> Tensor:
        images_BCHW = ops.resize(images_BCHW, self.image_size)
        levels = ops.crop_flip(images_BCHW, params["crop_start"], params["flip"], self.padding)
        if "op" in params:  # AutoAugment draws it
            levels = autoaugment_levels(levels, params["op"], params["magnitude"])
        return levels.float().div_(TOP_LEVEL)


@dataclass(frozen=True, kw_only=True, eq=False)
class AutoAugment(CropFlip):
    """Crop with padding and flip, then the CIFAR-10 policy with the operations and magnitudes of torchvision."""

    def draw(self, num_samples: int, generator: torch.Generator) -> Params:
        params = super().draw(num_samples, generator)
        device, shape = generator.device, (num_samples, 2)
        sub_policy_B = torch.randint(NUM_SUB_POLICIES, (num_samples,), generator=generator, device=device)
        chance_BS = torch.rand(shape, generator=generator, device=device)
        negative_BS = torch.rand(shape, generator=generator, device=device) < 0.5
        op_BS, magnitude_BS = choose_steps(sub_policy_B, chance_BS, negative_BS, self.image_size)
        return params | {"op": op_BS, "magnitude": magnitude_BS}
