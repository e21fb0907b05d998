"""Small affine maps and mild changes of tone, for tiny images in which a flip changes the class.

B: samples.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from contune.data.augment.checks import check_image, check_number, check_range
from contune.data.augment.geometry import sample_affine
from contune.data.augment.lookup import TOP_LEVEL
from contune.data.augment.policy import Params, draw_uniform
from contune.data.augment.resample import resize


def inverse_affine(angle_B: Tensor, scale_B: Tensor, shear_B: Tensor, translation_B2: Tensor) -> Tensor:
    """Inverse (B, 2, 3) of: shear along x, rotate clockwise, scale, move by pixels; angles in degrees."""
    cos, sin = torch.deg2rad(angle_B).cos(), torch.deg2rad(angle_B).sin()
    slope = torch.deg2rad(shear_B).tan()
    linear = torch.stack([cos - slope * sin, slope * cos + sin, -sin, cos], dim=1) / scale_B[:, None]
    linear_B22 = linear.unflatten(1, (2, 2))
    # A sum of products rather than a matrix product: TF32 would move pixels.
    offset_B2 = -(linear_B22 * translation_B2[:, None]).sum(2)
    return torch.cat([linear_B22, offset_B2[:, :, None]], dim=2)


@dataclass(frozen=True, kw_only=True, eq=False)
class Digits:
    """Rotation, translation, scale and shear by one bilinear sampling, then contrast and brightness."""

    image_size: int
    channels: int
    rotation: float = 15.0
    """Largest angle, in degrees."""
    translation: float = 0.125
    """Largest shift along each axis, as a share of the image's side."""
    scale: tuple[float, float] = (0.85, 1.15)
    """Smallest and largest size of the digit, 1 being its own."""
    shear: float = 10.0
    """Largest slant, in degrees."""
    contrast: float = 0.3
    """Values are multiplied by 1 ± this much."""
    brightness: float = 0.1
    """Values are shifted by up to this much of the full range."""

    def __post_init__(self) -> None:
        check_image(self.image_size, self.channels)
        check_number("rotation", self.rotation, 0, 180)
        check_number("translation", self.translation, 0, 1)
        check_range("scale", self.scale, 0, float("inf"))
        check_number("shear", self.shear, 0, 80)
        check_number("contrast", self.contrast, 0, 1)
        check_number("brightness", self.brightness, 0, 1)

    def draw(self, num_samples: int, generator: torch.Generator) -> Params:
        def around(centre: float, spread: float, *shape: int) -> Tensor:
            return draw_uniform((num_samples, *shape), centre - spread, centre + spread, generator)

        return {
            "angle": around(0, self.rotation),
            "scale": draw_uniform((num_samples,), *self.scale, generator),
            "shear": around(0, self.shear),
            "translation": around(0, self.translation * self.image_size, 2),
            "contrast": around(1, self.contrast),
            "brightness": around(0, self.brightness),
        }

    def apply(self, images_BCHW: Tensor, params: Params) -> Tensor:
        images = resize(images_BCHW, self.image_size).float().div_(TOP_LEVEL)
        inverse_B23 = inverse_affine(params["angle"], params["scale"], params["shear"], params["translation"])
        moved = sample_affine(images, inverse_B23, "bilinear")
        contrast, brightness = (params[name][:, None, None, None] for name in ("contrast", "brightness"))
        return (moved * contrast).add_(brightness).clamp_(0, 1)
