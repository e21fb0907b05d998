"""AutoAugment as in the code of the paper's authors, github.com/chaitanyaanimesh/Tuned-Contrastive-Learning.

Their AutoAugment is most likely that of github.com/4uiiurz1/pytorch-auto-augment, by way of
github.com/GuillaumeErhard/Supervised_contrastive_loss_pytorch: their script imports it as
`data_augmentation.auto_augment`, beside a `duplicate_sample_transform`, and that repository has both by these names.
Their own file was not compared. What follows is that implementation, "theirs" for short: torchvision's 25 sub-policies
with other operations.

- A range is cut into ten bins, and a magnitude is uniform within the bin of its step. So it has the bin's sign: a
  translation of bin 9 always goes the same way, a rotation of bin 2 always turns the same way. torchvision has ten
  fixed magnitudes and tosses a coin for the sign.
- Its matrices are for (row, column), so that what it calls a vertical shear moves pixels sideways. Shears and
  rotations leave the pixel in its place that is one to the right of the centre and one below it.
- Geometry is by cubic splines, and translations are by parts of a pixel.

Colours there are Pillow's. Here they are torchvision's, which truncate gray levels where Pillow rounds them: a blend
may be off by two levels of 255.

B: samples, S: the two steps.
"""

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from contune.data.augment.autoaugment import autoaugment_levels
from contune.data.augment.checks import check_image, check_integer, check_probability
from contune.data.augment.geometry import crop_flip, draw_crop_flip
from contune.data.augment.lookup import TOP_LEVEL
from contune.data.augment.moves import inverse_matrices
from contune.data.augment.policy import Params
from contune.data.augment.resample import resize
from contune.data.augment.spline import sample_spline
from contune.data.augment.subpolicies import SUB_POLICIES, Op

_NUM_BINS = 10
PIVOT = 1.0
"""What stays in its place, in pixels right of the centre and below it: their centre of N pixels is at N / 2 + 1/2."""


def magnitude_range(op: Op, bin_index: int, image_size: int) -> tuple[float, float]:
    """Between which magnitudes, in the units and with the signs of `move`, a step's is drawn."""
    ends = {
        Op.SHEAR_X: (-0.3, 0.3),
        Op.SHEAR_Y: (-0.3, 0.3),
        Op.TRANSLATE_X: (150 / 331 * image_size, -150 / 331 * image_size),
        Op.TRANSLATE_Y: (150 / 331 * image_size, -150 / 331 * image_size),
        Op.ROTATE: (30.0, -30.0),
        Op.BRIGHTNESS: (-0.9, 0.9),
        Op.CONTRAST: (-0.9, 0.9),
        Op.COLOR: (-0.9, 0.9),
        Op.SHARPNESS: (-0.9, 0.9),
        Op.POSTERIZE: (4.0, 8.0),
        Op.SOLARIZE: (0.0, 256.0),
    }
    first, last = ends.get(op, (0.0, 0.0))
    width = (last - first) / _NUM_BINS
    return first + bin_index * width, first + (bin_index + 1) * width


@cache
@torch.inference_mode(False)
def _table(image_size: int, device: torch.device) -> Tensor:
    """(25, 2, 4): operation, probability and the ends of its magnitudes, of both steps of each sub-policy."""
    other_axis = {Op.SHEAR_X: Op.SHEAR_Y, Op.SHEAR_Y: Op.SHEAR_X}
    rows = [
        [
            (other_axis.get(op, op), probability, *magnitude_range(op, bin_index, image_size))
            for op, probability, bin_index in steps
        ]
        for steps in SUB_POLICIES
    ]
    return torch.tensor(rows, dtype=torch.float32, device=device)


def choose_steps(sub_policy_B: Tensor, chance_BS: Tensor, place_BS: Tensor, image_size: int) -> tuple[Tensor, Tensor]:
    """Operations and magnitudes (B, 2): `place_BS`, from 0 to 1, is where in its bin a magnitude lies."""
    op, probability, first, last = _table(image_size, sub_policy_B.device)[sub_policy_B].unbind(2)
    magnitude = torch.lerp(first, last, place_BS)
    magnitude = torch.where(op == Op.POSTERIZE, magnitude.round(), magnitude)
    happens = chance_BS < probability
    return torch.where(happens, op, Op.IDENTITY).long(), torch.where(happens, magnitude, 0.0)


def move(levels_BCHW: Tensor, op_B: Tensor, magnitude_B: Tensor) -> Tensor:
    inverse_B23 = inverse_matrices(op_B, magnitude_B, shear_about=PIVOT, turn_about=PIVOT)
    return sample_spline(levels_BCHW, inverse_B23)


@dataclass(frozen=True, kw_only=True, eq=False)
class AuthorsAutoAugment:
    """Crop with padding and flip, then the CIFAR-10 policy with the operations of the paper's authors."""

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
        chance_BS, place_BS = (torch.rand(shape, generator=generator, device=device) for _ in range(2))
        op_BS, magnitude_BS = choose_steps(sub_policy_B, chance_BS, place_BS, self.image_size)
        return params | {"op": op_BS, "magnitude": magnitude_BS}

    def apply(self, images_BCHW: Tensor, params: Params) -> Tensor:
        images_BCHW = resize(images_BCHW, self.image_size)
        images_BCHW = crop_flip(images_BCHW, params["crop_start"], params["flip"], self.padding)
        return autoaugment_levels(images_BCHW, params["op"], params["magnitude"], move).div_(TOP_LEVEL)
