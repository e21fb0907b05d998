"""SimCLR's augmentation and its relatives, by options, in the order of the reference recipes.

RandomResizedCrop, colour jitter, gray, blur, solarize, flip. The flip is computed with the crop: the steps
between do the same to an image and to its mirror image.

B: samples, C: channels, H, W: height, width.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from contune.data.augment.blur import blur_radius, gaussian_blur
from contune.data.augment.checks import check_image, check_number, check_probability, check_range
from contune.data.augment.color import NUM_JITTERS, gray_where, jitter, solarize_where
from contune.data.augment.lookup import TOP_LEVEL
from contune.data.augment.policy import Params, draw_chance, draw_uniform
from contune.data.augment.resample import Interpolation, crop_boxes, draw_crop, resized_crop
from contune.errors import UserError, unknown


def draw_jitter(
    num_samples: int,
    strength: tuple[float, float, float, float],
    probability: float,
    generator: torch.Generator,
) -> Params:
    """Factors around 1, a turn of the hue around 0 and an order; samples left alone have 1 and 0."""
    jittered_B = draw_chance(num_samples, probability, generator)
    factors = [draw_uniform((num_samples,), max(0, 1 - s), 1 + s, generator) for s in strength[:3]]
    turn_B = draw_uniform((num_samples,), -strength[3], strength[3], generator)
    shuffle_B4 = torch.rand(num_samples, NUM_JITTERS, generator=generator, device=generator.device)
    return {
        "jitter_factors": torch.where(jittered_B[:, None], torch.stack(factors, dim=1), 1.0),
        "jitter_turn": torch.where(jittered_B, turn_B, 0.0),
        "jitter_order": shuffle_B4.argsort(1),
    }


@dataclass(frozen=True, kw_only=True, eq=False)
class SimAugment:
    image_size: int
    channels: int
    crop_scale: tuple[float, float] = (0.08, 1.0)
    """Smallest and largest share of the image's area in a crop."""
    crop_ratio: tuple[float, float] = (3 / 4, 4 / 3)
    """Smallest and largest width over height of a crop."""
    interpolation: Interpolation = "bicubic"
    jitter: tuple[float, float, float, float] = (0.8, 0.8, 0.8, 0.2)
    """Strengths of brightness, contrast, saturation and hue."""
    jitter_probability: float = 0.8
    gray: float = 0.2
    """Probability of losing the colour."""
    blur: float = 0.5
    """Probability of a Gaussian blur."""
    blur_sigma: tuple[float, float] = (0.1, 2.0)
    """Smallest and largest standard deviation of the blur, in pixels of the view."""
    solarize: float = 0.0
    """Probability of inverting the bright half."""
    flip: float = 0.5
    """Probability of a horizontal flip."""

    def __post_init__(self) -> None:
        check_image(self.image_size, self.channels)
        check_range("crop_scale", self.crop_scale, 0, 1)
        check_range("crop_ratio", self.crop_ratio, 0, float("inf"))
        check_range("blur_sigma", self.blur_sigma, 0, float("inf"))
        if self.interpolation not in ("bicubic", "bilinear"):
            raise unknown("interpolation", str(self.interpolation), ("bicubic", "bilinear"))
        if not isinstance(self.jitter, tuple) or len(self.jitter) != 4:
            raise UserError(
                f"jitter={self.jitter!r} is not four strengths; give those of brightness, contrast, "
                "saturation and hue, such as (0.4, 0.4, 0.4, 0.1)"
            )
        for name, strength, largest in zip(
            ("brightness", "contrast", "saturation", "hue"), self.jitter, (10, 10, 10, 0.5), strict=True
        ):
            check_number(f"jitter of {name}", strength, 0, largest)
        for name in ("jitter_probability", "gray", "blur", "solarize", "flip"):
            check_probability(name, getattr(self, name))

    def draw(self, num_samples: int, generator: torch.Generator) -> Params:
        params = draw_crop(num_samples, self.crop_scale, self.crop_ratio, generator)
        params |= draw_jitter(num_samples, self.jitter, self.jitter_probability, generator)
        params["gray"] = draw_chance(num_samples, self.gray, generator)
        blurred_B = draw_chance(num_samples, self.blur, generator)
        params["blur_sigma"] = draw_uniform((num_samples,), *self.blur_sigma, generator) * blurred_B
        params["solarize"] = draw_chance(num_samples, self.solarize, generator)
        params["flip"] = draw_chance(num_samples, self.flip, generator)
        return params

    def boxes(self, params: Params, height: int, width: int) -> tuple[Tensor, Tensor]:
        return crop_boxes(params, height, width, self.crop_ratio)

    def apply(self, images_BCHW: Tensor, params: Params) -> Tensor:
        start_B2, size_B2 = self.boxes(params, *images_BCHW.shape[-2:])
        views = resized_crop(
            images_BCHW.float(),
            start_B2,
            size_B2,
            params["flip"],
            size=self.image_size,
            interpolation=self.interpolation,
        )
        return self._change_colours(views, params)

    def apply_cropped(self, crops_BCHW: Tensor, params: Params) -> Tensor:
        mirrored = torch.where(params["flip"][:, None, None, None], crops_BCHW.flip(3), crops_BCHW)
        return self._change_colours(mirrored.float(), params)

    def _change_colours(self, views: Tensor, params: Params) -> Tensor:
        """All but the crop and the flip, to levels 0…255."""
        views = views.div_(TOP_LEVEL).clamp_(0, 1)  # bicubic overshoots at edges
        if self.jitter_probability > 0:
            views = jitter(views, params["jitter_factors"], params["jitter_turn"], params["jitter_order"])
        if self.gray > 0:
            views = gray_where(views, params["gray"])
        if self.blur > 0:
            views = gaussian_blur(views, params["blur_sigma"], blur_radius(self.blur_sigma[1], self.image_size))
        if self.solarize > 0:
            views = solarize_where(views, params["solarize"])
        return views
