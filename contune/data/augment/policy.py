"""What an augmentation policy is: parameters drawn per sample, then applied to a whole batch."""

from typing import Literal, Protocol, runtime_checkable

import torch
from torch import Tensor

Params = dict[str, Tensor]
"""What was drawn: each entry's first dimension is the number of samples."""


class Policy(Protocol):
    """One kind of view. Row i of the parameters and image i alone decide result i."""

    @property
    def image_size(self) -> int:
        """The side of a view, in pixels."""
        ...

    def draw(self, num_samples: int, generator: torch.Generator) -> Params:
        """Random parameters for `num_samples` images, on the generator's device."""
        ...

    def apply(self, images_BCHW: Tensor, params: Params) -> Tensor:
        """uint8 images (B, C, H, W) to float32 in [0, 1] of (B, C, size, size); nothing random in it."""
        ...


@runtime_checkable
class CropsFirst(Protocol):
    """A policy that begins with a crop, which may as well be made where an image is decoded, from all its pixels.

    The names of the parameters that decide it begin with `crop_`.
    """

    @property
    def image_size(self) -> int: ...

    @property
    def interpolation(self) -> Literal["bilinear", "bicubic"]: ...

    def boxes(self, params: Params, height: int, width: int) -> tuple[Tensor, Tensor]:
        """Start (top, left) and size (height, width) of each sample's crop in images of this size, in pixels."""
        ...

    def apply_cropped(self, crops_BCHW: Tensor, params: Params) -> Tensor:
        """What `apply` does after the crop, to uint8 crops (B, C, size, size)."""
        ...


def slice_params(params: Params, start: int, stop: int) -> Params:
    """The rows of samples start..stop-1, so that a rank takes its part of what was drawn for all."""
    return {name: value[start:stop] for name, value in params.items()}


def draw_chance(num_samples: int, probability: float, generator: torch.Generator) -> Tensor:
    """True with `probability`, for each sample on its own."""
    return torch.rand(num_samples, generator=generator, device=generator.device) < probability


def draw_uniform(shape: tuple[int, ...], low: float, high: float, generator: torch.Generator) -> Tensor:
    return low + (high - low) * torch.rand(shape, generator=generator, device=generator.device)
