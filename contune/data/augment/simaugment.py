"""SimCLR's augmentation and its variants, by options, in the order of the reference recipes.

Random resized crop, color jitter, gray, blur, solarize, flip. The flip is computed with the crop: the steps in between
do the same to an image and to its mirror image. The tests compare every step with torchvision's on float images.

Images with other channels than gray or color have no hue; their gray is the mean of the channels, as in SSL4EO-S12.

B: samples, C: channels, H, W: height, width, O: output side, I: input side along one axis, A: attempts at a
crop, S: steps of the jitter, N: side of a square image, T: taps of the blur from its center outwards.
"""

import math
from dataclasses import dataclass
from functools import cache, partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from contune.data.augment import ops
from contune.data.augment.ops import TOP_LEVEL, Params, Policy
from contune.data.decode import Interpolation, Piece, whole
from contune.errors import UserError
from contune.settings import one_of, ranged

# ---------------------------------------------------------------------------- random resized crop

CROP_ATTEMPTS = 10
"""torchvision's RandomResizedCrop gives up after so many and crops the center."""


def largest_center_box(height: int, width: int, ratio: tuple[float, float]) -> tuple[int, int]:
    if width / height < ratio[0]:
        return max(1, round(width / ratio[0])), width
    if width / height > ratio[1]:
        return height, max(1, round(height * ratio[1]))
    return height, width


def crop_boxes(params: Params, height: int, width: int, ratio: tuple[float, float]) -> tuple[Tensor, Tensor]:
    """Start (top, left) and size (height, width) of each sample's box: its first attempt that fits."""
    area_BA = params["crop_area"] * (height * width)
    aspect_BA = params["crop_aspect"]
    sides_BA2 = torch.stack([area_BA / aspect_BA, area_BA * aspect_BA], dim=2).sqrt_().round_()
    limit_2 = ops.constant((height, width), area_BA.device)
    fits_BA = ((sides_BA2 > 0) & (sides_BA2 <= limit_2)).all(2)
    first_B = fits_BA.int().argmax(1)
    attempt_B2 = sides_BA2.gather(1, first_B[:, None, None].expand(-1, 1, 2))[:, 0]
    center_2 = ops.constant(largest_center_box(height, width, ratio), area_BA.device)
    some_B1 = fits_BA.any(1, keepdim=True)
    size_B2 = torch.where(some_B1, attempt_B2, center_2)
    room_B2 = limit_2 - size_B2
    anywhere_B2 = (params["crop_position"] * (room_B2 + 1)).floor()
    return torch.where(some_B1, anywhere_B2, (room_B2 / 2).floor()), size_B2


def _cubic(distance: Tensor) -> Tensor:
    """Keys' kernel with a = -1/2: what Pillow, and torch with antialiasing, call bicubic.

    One polynomial up to a distance of 1, another up to 2. Both are 0 at 1, and the second at 2. So each is evaluated
    at the nearest point of its own interval and the two are added.
    """
    near, far = distance.clamp(max=1), distance.clamp(1, 2)
    within_1 = near.mul(1.5).sub_(2.5).mul_(near).mul_(near).add_(1)
    within_2 = far.mul(-0.5).add_(2.5).mul_(far).sub_(4).mul_(far).add_(2)
    return within_1.add_(within_2)


def box_weights(
    start_B: Tensor, size_B: Tensor, mirror_B: Tensor, num_in: int, num_out: int, interpolation: Interpolation
) -> Tensor:
    """Weights (B, O, I) that resample the pixels start..start+size-1 of one axis to `num_out` pixels."""
    device = start_B.device
    step_B11 = (size_B / num_out)[:, None, None]
    out_O = ops.count_to(num_out, device)
    out_BO = torch.where(mirror_B[:, None], num_out - 1 - out_O, out_O)
    center_BO1 = start_B[:, None, None] + step_B11 * (out_BO[:, :, None] + 0.5)
    in_I = ops.count_to(num_in, device)
    # Shrinking widens the kernel (antialiasing); enlarging does not.
    distance_BOI = ((in_I + 0.5 - center_BO1) / step_B11.clamp(min=1)).abs_()
    kernel_BOI = _cubic(distance_BOI) if interpolation == "bicubic" else (1 - distance_BOI).clamp_(min=0)
    inside_BI = (in_I >= start_B[:, None]) & (in_I < (start_B + size_B)[:, None])
    weights_BOI = kernel_BOI.mul_(inside_BI[:, None].float())
    return weights_BOI.div_(weights_BOI.sum(2, keepdim=True))


def apply_separable(images_BCHW: Tensor, rows_BOH: Tensor, columns_BOW: Tensor) -> Tensor:
    """Each sample's rows and columns mixed by its own weights: out = rows · image · columnsᵀ.

    Never in half precision, even under autocast. TF32, where allowed, costs up to 1/255.
    """
    C, H = images_BCHW.shape[1:3]
    with torch.autocast(images_BCHW.device.type, enabled=False):
        wide_BCHO = torch.bmm(images_BCHW.flatten(1, 2), columns_BOW.mT).view(-1, C, H, columns_BOW.shape[1])
        return torch.matmul(rows_BOH[:, None], wide_BCHO)


def resized_crop(
    images_BCHW: Tensor, start_B2: Tensor, size_B2: Tensor, mirror_B: Tensor, size: int, interpolation: Interpolation
) -> Tensor:
    """Each sample's own box resized to (size, size), mirrored left to right where `mirror_B`."""
    H, W = images_BCHW.shape[-2:]
    # Both axes in one computation; the longer one's pixels include the shorter one's.
    starts, sizes = start_B2.mT.flatten(), size_B2.mT.flatten()
    mirrors = torch.cat([torch.zeros_like(mirror_B), mirror_B])
    rows_BOI, columns_BOI = box_weights(starts, sizes, mirrors, max(H, W), size, interpolation).chunk(2)
    return apply_separable(images_BCHW, rows_BOI[..., :H], columns_BOI[..., :W])


# ---------------------------------------------------------------------------- color jitter, on images in [0, 1]

BRIGHTNESS, CONTRAST, SATURATION, HUE = range(4)
NUM_JITTERS = 4


def blend(images_BCHW: Tensor, other: Tensor, factor_B: Tensor) -> Tensor:
    """factor · image + (1 - factor) · other, clamped."""
    factor = factor_B[:, None, None, None]
    return torch.addcmul((1 - factor) * other, factor, images_BCHW).clamp_(0, 1)


def shift_hue(images_B3HW: Tensor, turn_B: Tensor) -> Tensor:
    """Turns the hue by `turn_B` of the color circle (-1/2 to 1/2) and keeps value and saturation.

    With the hue h in sixths of the circle, value V and chroma D = max - min, the channel at offset n
    (5, 3, 1 for red, green, blue) is V - D · clamp(min(k, 4 - k), 0, 1) where k = (n + h) mod 6.
    Masks of 0 and 1 instead of `where`: on a CPU choosing pixel by pixel takes many times as long.
    """
    red, green, blue = images_B3HW.split(1, dim=1)
    value_B1HW, least_B1HW = images_B3HW.amax(1, keepdim=True), images_B3HW.amin(1, keepdim=True)
    chroma_B1HW = value_B1HW - least_B1HW
    # Rounding up gives 1 for everything below the value.
    of_red = 1 - (value_B1HW - red).ceil_()
    of_green = (1 - (value_B1HW - green).ceil_()).mul_(1 - of_red)
    of_blue = 1 - of_red - of_green
    # The hue's distance from that of the brightest channel, then the hue of that channel.
    hue_B1HW = (green - blue).mul_(of_red).add_((blue - red).mul_(of_green)).add_((red - green).mul_(of_blue))
    hue_B1HW.div_(chroma_B1HW.clamp(min=1e-12)).add_(of_green.mul_(2)).add_(of_blue.mul_(4))
    hue_B1HW += 6 * turn_B[:, None, None, None]
    k_B3HW = hue_B1HW + ops.constant((5, 3, 1), images_B3HW.device)[:, None, None]
    k_B3HW.sub_((k_B3HW / 6).floor_().mul_(6))
    below_B3HW = torch.minimum(k_B3HW, 4 - k_B3HW, out=k_B3HW).clamp_(0, 1).mul_(chroma_B1HW)
    return below_B3HW.neg_().add_(value_B1HW)


def jitter(images_BCHW: Tensor, factors_B3: Tensor, turn_B: Tensor, order_B4: Tensor) -> Tensor:
    """Brightness, contrast, saturation (factors; 1 keeps) and hue (a turn; 0 keeps) in each sample's order.

    A step that is a different blend in every sample is one computation. Hue is not a blend and is computed once. What a
    sample has before its hue step is blended before it, the rest after it. A step on the other side is a blend with a
    factor of 1.
    """
    is_hue_BS = order_B4 == HUE
    factor_BS = torch.cat([factors_B3, torch.ones_like(factors_B3[:, :1])], dim=1).gather(1, order_B4)
    if images_BCHW.shape[1] != 3:
        return _blend_steps(images_BCHW, factor_BS, order_B4, range(NUM_JITTERS))
    before_BS = is_hue_BS.cumsum(1) == 0
    early_BS, late_BS = factor_BS.masked_fill(~before_BS, 1.0), factor_BS.masked_fill(before_BS, 1.0)
    images_BCHW = _blend_steps(images_BCHW, early_BS, order_B4, range(NUM_JITTERS - 1))
    images_BCHW = shift_hue(images_BCHW, turn_B)
    return _blend_steps(images_BCHW, late_BS, order_B4, range(1, NUM_JITTERS))


def _blend_steps(images_BCHW: Tensor, factor_BS: Tensor, order_BS: Tensor, steps: range) -> Tensor:
    for step in steps:
        operation, gray = order_BS[:, step, None, None, None], ops.gray(images_BCHW)
        other = torch.where(operation == CONTRAST, gray.mean((2, 3), keepdim=True), 0.0)
        images_BCHW = blend(images_BCHW, torch.where(operation == SATURATION, gray, other), factor_BS[:, step])
    return images_BCHW


# ---------------------------------------------------------------------------- blur

NARROWEST_BLUR = 1e-3
"""A Gaussian this narrow is exactly one pixel in float32. Samples without blur get it, so that nothing divides by 0."""


def blur_radius(largest_sigma: float, size: int) -> int:
    """Three standard deviations of the widest blur, 99.7 % of its mass, but at most what reflection allows.

    SimCLR's own code cuts the kernel at a tenth of the image, which at 32 pixels leaves 3 taps, so that every sigma
    above 1 is nearly the same box. Pillow, used by solo-learn's recipes, blurs with the full width; so does contune.
    """
    return min(math.ceil(3 * largest_sigma), size - 1)


@cache
@torch.inference_mode(False)
def _tap_of_pixel(size: int, radius: int, device: torch.device) -> Tensor:
    """(3, N·N): which tap carries input pixel j to output i, directly and by reflection at either end.

    The tap radius + 1 stands for none.
    """
    i_N1, j_N = torch.arange(size)[:, None], torch.arange(size)
    none = radius + 1
    direct = (i_N1 - j_N).abs()
    at_start = torch.where(j_N > 0, i_N1 + j_N, none)
    at_end = torch.where(j_N < size - 1, 2 * (size - 1) - i_N1 - j_N, none)
    return torch.stack([direct, at_start, at_end]).clamp(max=none).flatten(1).to(device)


def gaussian_blur(images_BCNN: Tensor, sigma_B: Tensor, radius: int) -> Tensor:
    """Blurs by sigma_B pixels with reflection at the border."""
    size, device = images_BCNN.shape[-1], images_BCNN.device
    scaled_BT = ops.count_to(radius + 2, device) / sigma_B.clamp(min=NARROWEST_BLUR)[:, None]
    taps_BT = (-0.5 * scaled_BT.square_()).exp_()
    taps_BT[:, radius + 1] = 0
    taps_BT = taps_BT / (2 * taps_BT.sum(1, keepdim=True) - 1)
    direct, at_start, at_end = _tap_of_pixel(size, radius, device)
    weights = taps_BT.index_select(1, direct)
    weights += taps_BT.index_select(1, at_start)
    weights += taps_BT.index_select(1, at_end)
    weights_BNN = weights.unflatten(1, (size, size))
    return apply_separable(images_BCNN, weights_BNN, weights_BNN)


# ---------------------------------------------------------------------------- the policy


@dataclass(frozen=True, kw_only=True, eq=False)
class SimAugment(Policy):
    """The steps in the module's docstring, each with its own probability and strength."""

    crop_scale: tuple[float, float] = (0.08, 1.0)
    """Smallest and largest share of the image's area in a crop."""
    crop_ratio: tuple[float, float] = (3 / 4, 4 / 3)
    """Smallest and largest width over height of a crop."""
    interpolation: Interpolation = one_of("bicubic", ("bicubic", "bilinear"))  # noqa: RUF009  (one_of makes a field)
    jitter: tuple[float, float, float, float] = (0.8, 0.8, 0.8, 0.2)
    """Strengths of brightness, contrast, saturation and hue."""
    jitter_probability: float = ranged(0.8, low=0, high=1)
    gray: float = ranged(0.2, low=0, high=1)
    """Probability of losing the color."""
    blur: float = ranged(0.5, low=0, high=1)
    """Probability of a Gaussian blur."""
    blur_sigma: tuple[float, float] = (0.1, 2.0)
    """Smallest and largest standard deviation of the blur, in pixels of the view."""
    solarize: float = ranged(0.0, low=0, high=1)
    """Probability of inverting the bright half."""
    flip: float = ranged(0.5, low=0, high=1)
    """Probability of a horizontal flip."""

    def __post_init__(self) -> None:
        super().__post_init__()
        ops.check_interval("crop_scale", self.crop_scale, 1)
        ops.check_interval("crop_ratio", self.crop_ratio)
        ops.check_interval("blur_sigma", self.blur_sigma)
        if len(self.jitter) != 4 or not all(0 <= s <= 10 for s in self.jitter) or self.jitter[3] > 0.5:
            raise UserError(f"jitter must be brightness, contrast, saturation and hue (up to 0.5), got {self.jitter}")

    def draw(self, num_samples: int, generator: torch.Generator) -> Params:
        def uniform(low: float, high: float, *shape: int) -> Tensor:
            return ops.draw_uniform((num_samples, *shape), low, high, generator)

        # Which attempt at a crop fits depends on the image's size, so `crop_boxes` decides that.
        log_low, log_high = torch.tensor(self.crop_ratio).log().tolist()
        params = {
            "crop_area": uniform(*self.crop_scale, CROP_ATTEMPTS),
            "crop_aspect": uniform(log_low, log_high, CROP_ATTEMPTS).exp_(),
            "crop_position": torch.rand(num_samples, 2, generator=generator, device=generator.device),
        }
        jittered_B = ops.draw_chance(num_samples, self.jitter_probability, generator)
        factors = [uniform(max(0, 1 - s), 1 + s) for s in self.jitter[:3]]
        turn_B = uniform(-self.jitter[3], self.jitter[3])
        shuffle_B4 = torch.rand(num_samples, NUM_JITTERS, generator=generator, device=generator.device)
        params["jitter_factors"] = torch.where(jittered_B[:, None], torch.stack(factors, dim=1), 1.0)
        params["jitter_turn"] = torch.where(jittered_B, turn_B, 0.0)
        params["jitter_order"] = shuffle_B4.argsort(1)
        params["gray"] = ops.draw_chance(num_samples, self.gray, generator)
        blurred_B = ops.draw_chance(num_samples, self.blur, generator)
        params["blur_sigma"] = uniform(*self.blur_sigma) * blurred_B
        params["solarize"] = ops.draw_chance(num_samples, self.solarize, generator)
        params["flip"] = ops.draw_chance(num_samples, self.flip, generator)
        return params

    def apply(self, images_BCHW: Tensor, params: Params) -> Tensor:
        H, W = images_BCHW.shape[-2:]
        start_B2, size_B2 = crop_boxes(params, H, W, self.crop_ratio)
        views = resized_crop(
            images_BCHW.float(), start_B2, size_B2, params["flip"], self.image_size, self.interpolation
        )
        return self._change_colors(views, params)

    def apply_cropped(self, crops_BCHW: Tensor, params: Params) -> Tensor:
        crops_BCHW = ops.resize(crops_BCHW, self.image_size)
        mirrored = torch.where(params["flip"][:, None, None, None], crops_BCHW.flip(3), crops_BCHW)
        return self._change_colors(mirrored.float(), params)

    def _change_colors(self, views: Tensor, params: Params) -> Tensor:
        """All but the crop and the flip, from levels 0…255 to [0, 1]."""
        views = views.div_(TOP_LEVEL).clamp_(0, 1)  # bicubic overshoots at edges
        if self.jitter_probability > 0:
            jittered_B = (params["jitter_turn"] != 0) | (params["jitter_factors"] != 1).any(1)
            drawn = params["jitter_factors"], params["jitter_turn"], params["jitter_order"]
            views = ops.where_chosen(views, jittered_B, jitter, *drawn)
        if self.gray > 0:
            views = ops.where_chosen(views, params["gray"], lambda images: ops.gray(images).expand_as(images))
        if self.blur > 0:
            blur = partial(gaussian_blur, radius=blur_radius(self.blur_sigma[1], self.image_size))
            views = ops.where_chosen(views, params["blur_sigma"] > 0, blur, params["blur_sigma"])
        if self.solarize > 0:
            # The bright half inverted; on 256 levels this is Pillow's threshold of 128.
            views = ops.where_chosen(views, params["solarize"], lambda images: torch.minimum(images, 1 - images))
        return views


class Crops(NamedTuple):
    """The crop of each view of each image in a batch, drawn before any image's size is known.

    SimAugment begins with a crop, so the workers that decode images can crop them at full size.
    """

    num_views: int
    groups: tuple[tuple[SimAugment, tuple[int, ...], dict[str, np.ndarray]], ...]
    """A policy, its views, and their parameters of the crop, (B, V, …)."""

    def pieces(self, sample: int, height: int, width: int) -> list[Piece]:
        """A piece for each view of one sample; a policy that does not begin with a crop gets the whole image."""
        pieces = [*whole(height, width)] * self.num_views
        for policy, views, drawn in self.groups:
            own = {name: torch.from_numpy(value[sample]) for name, value in drawn.items()}
            boxes_V4 = torch.cat(crop_boxes(own, height, width, policy.crop_ratio), dim=1).int().tolist()
            for view, (top, left, rows, columns) in zip(views, boxes_V4, strict=True):
                pieces[view] = Piece(top, left, rows, columns, policy.interpolation)
        return pieces
