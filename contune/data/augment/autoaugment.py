"""AutoAugment for a batch: each sample has its own sub-policy, signs and chances.

The steps are computed in one of two ways (see grouping.py) that give the same levels: operation by operation, each
on its own samples, or all at once, every sample going through a blend, a table and a sampling that all but its own
operation leave at a magnitude of 0, the table of the identity and the identity matrix.

B: samples, S: the two steps, C: channels, H, W: height, width, P: pixels, L: levels.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from contune.data.augment.checks import check_image, check_integer, check_probability
from contune.data.augment.color import black
from contune.data.augment.constants import count_to
from contune.data.augment.geometry import crop_flip, draw_crop_flip
from contune.data.augment.grouping import can_ask, each_kind
from contune.data.augment.levels import OTHERS, blend
from contune.data.augment.lookup import NUM_LEVELS, TABLES, TOP_LEVEL, look_up
from contune.data.augment.moves import move
from contune.data.augment.policy import Params
from contune.data.augment.resample import resize
from contune.data.augment.subpolicies import LAST_MOVE, LAST_SIGNED, SUB_POLICIES, Op, sub_policy_table

Move = Callable[[Tensor, Tensor, Tensor], Tensor]
"""From levels, operations and magnitudes to levels; a sample whose operation moves no pixels stays as it is."""


def choose_steps(
    sub_policy_B: Tensor, chance_BS: Tensor, negative_BS: Tensor, image_size: int
) -> tuple[Tensor, Tensor]:
    """Operations and magnitudes (B, 2): a step happens where its chance is below its probability."""
    op, probability, magnitude = sub_policy_table(image_size, sub_policy_B.device)[sub_policy_B].unbind(2)
    negated = torch.where(negative_BS & (op <= LAST_SIGNED), -magnitude, magnitude)
    happens = chance_BS < probability
    return torch.where(happens, op, Op.IDENTITY).long(), torch.where(happens, negated, 0.0)


def one_by_one(levels_BCHW: Tensor, op_BS: Tensor, magnitude_BS: Tensor, move: Move) -> Tensor:
    """Operation by operation, on uint8 levels; the operations that move pixels count as one."""
    kind_BS = op_BS.masked_fill((op_BS > Op.IDENTITY) & (op_BS <= LAST_MOVE), LAST_MOVE)

    def operate(step: int, kind: int, some_BCHW: Tensor, numbers_B: Tensor) -> Tensor:
        op, magnitude_B = Op(kind), magnitude_BS[:, step].index_select(0, numbers_B)
        if op in TABLES:
            index_BCP = some_BCHW.flatten(2).long()
            table = TABLES[op](index_BCP, magnitude_B)
            return look_up(index_BCP, table.to(torch.uint8)).view_as(some_BCHW)
        some_BCHW = some_BCHW.float()
        if op in OTHERS:
            changed = blend(some_BCHW, OTHERS[op](some_BCHW), magnitude_B)
        else:
            changed = move(some_BCHW, op_BS[:, step].index_select(0, numbers_B), magnitude_B)
        return changed.int().to(torch.uint8)  # by way of int32 it is three times as fast

    return each_kind(levels_BCHW.to(torch.uint8), kind_BS, operate).float()


def all_at_once(levels_BCHW: Tensor, op_BS: Tensor, magnitude_BS: Tensor, move: Move) -> Tensor:
    """A blend, a table and a sampling of every sample in every step, on float32 levels."""
    levels_BCHW = levels_BCHW.float()
    blend_BS = magnitude_BS * ((op_BS > LAST_MOVE) & (op_BS <= LAST_SIGNED))
    for step in range(op_BS.shape[1]):
        op_B, magnitude_B = op_BS[:, step], magnitude_BS[:, step]
        other = black(levels_BCHW)
        for op, other_of in OTHERS.items():
            other = torch.where((op_B == op)[:, None, None, None], other_of(levels_BCHW), other)
        levels_BCHW = blend(levels_BCHW, other, blend_BS[:, step])
        index_BCP = levels_BCHW.flatten(2).long()
        table = count_to(NUM_LEVELS, levels_BCHW.device)
        for op, table_of in TABLES.items():
            table = torch.where((op_B == op)[:, None, None], table_of(index_BCP, magnitude_B), table)
        levels_BCHW = look_up(index_BCP, table).view_as(levels_BCHW)
        levels_BCHW = move(levels_BCHW, op_B, magnitude_B)
    return levels_BCHW


def autoaugment_levels(levels_BCHW: Tensor, op_BS: Tensor, magnitude_BS: Tensor, move: Move = move) -> Tensor:
    """All steps on levels, uint8 or whole numbers in float32, to float32; equal to torchvision's on uint8."""
    if levels_BCHW.shape[1] == 1:  # torchvision's saturation keeps a gray image
        op_BS = op_BS.masked_fill(op_BS == Op.COLOR, Op.IDENTITY)
    take_steps = one_by_one if can_ask(levels_BCHW) else all_at_once
    return take_steps(levels_BCHW, op_BS, magnitude_BS, move)


@dataclass(frozen=True, kw_only=True, eq=False)
class AutoAugment:
    """Crop with padding and flip, then the CIFAR-10 policy with the operations and magnitudes of torchvision."""

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
        return autoaugment_levels(images_BCHW, params["op"], params["magnitude"]).div_(TOP_LEVEL)
