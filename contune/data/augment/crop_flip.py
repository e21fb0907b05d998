"""The two plain policies: nothing but resizing, and a shifted crop with a flip."""

from dataclasses import dataclass

import torch
from torch import Tensor

from contune.data.augment.checks import check_image, check_integer, check_probability
from contune.data.augment.geometry import crop_flip, draw_crop_flip
from contune.data.augment.lookup import TOP_LEVEL
from contune.data.augment.policy import Params
from contune.data.augment.resample import resize


@dataclass(frozen=True, kw_only=True, eq=False)
class ResizeOnly:
    """Every view is the image itself, squashed to the wanted size."""

    image_size: int
    channels: int

    def __post_init__(self) -> None:
        check_image(self.image_size, self.channels)

    def draw(self, num_samples: int, generator: torch.Generator) -> Params:
        return {}

    def apply(self, images_BCHW: Tensor, params: Params) -> Tensor:
        return resize(images_BCHW, self.image_size).float().div_(TOP_LEVEL)


@dataclass(frozen=True, kw_only=True, eq=False)
class CropFlip:
    """A random crop of the padded image and a horizontal flip."""

    image_size: int
    channels: int
    padding: int = 4
    """Zeros added on every side before the crop, in pixels."""
    flip: float = 0.5
    """Probability of a horizontal flip; 0 where mirroring changes the class."""

    def __post_init__(self) -> None:
        check_image(self.image_size, self.channels)
        check_integer("padding", self.padding, 0)
        check_probability("flip", self.flip)

    def draw(self, num_samples: int, generator: torch.Generator) -> Params:
        return draw_crop_flip(num_samples, self.padding, self.flip, generator)

    def apply(self, images_BCHW: Tensor, params: Params) -> Tensor:
        images_BCHW = resize(images_BCHW, self.image_size)
        moved = crop_flip(images_BCHW, params["crop_start"], params["flip"], self.padding)
        return moved.float().div_(TOP_LEVEL)
