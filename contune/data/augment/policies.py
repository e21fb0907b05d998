"""Policies by name, and the Augmenter, which turns a batch of images into the views that a method sees.

A policy draws random parameters for every sample from a generator and then applies them to the whole batch. The same
parameters drive the torch operations and the Triton kernels, so the two can be compared pixel by pixel.

B: samples, V: views of one policy, C: channels, H, W: height, width.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from contune.data.augment import ops
from contune.data.augment.autoaugment import AutoAugment, CropFlip
from contune.data.augment.ops import TOP_LEVEL, Params, Policy
from contune.data.augment.simaugment import SimAugment, crop_boxes
from contune.data.decode import Piece, whole
from contune.device import HAS_TRITON
from contune.errors import unknown
from contune.settings import annotations_of, parse, ranged, split_assignment


@dataclass(frozen=True, kw_only=True, eq=False)
class Digits(Policy):
    """For tiny images in which a flip changes the class: small affine maps, contrast and brightness."""

    rotation: float = ranged(15.0, low=0, high=180)
    """Largest angle, in degrees."""
    translation: float = ranged(0.125, low=0, high=1)
    """Largest shift along each axis, as a share of the image's side."""
    scale: tuple[float, float] = (0.85, 1.15)
    """Smallest and largest size of the digit relative to the original."""
    shear: float = ranged(10.0, low=0, high=80)
    """Largest slant, in degrees."""
    contrast: float = ranged(0.3, low=0, high=1)
    """Values are multiplied by 1 ± this much."""
    brightness: float = ranged(0.1, low=0, high=1)
    """Values are shifted by up to this share of the full range."""

    def __post_init__(self) -> None:
        super().__post_init__()
        ops.check_interval("scale", self.scale)

    def draw(self, num_samples: int, generator: torch.Generator) -> Params:
        def around(center: float, spread: float, *shape: int) -> Tensor:
            return ops.draw_uniform((num_samples, *shape), center - spread, center + spread, generator)

        return {
            "angle": around(0, self.rotation),
            "scale": ops.draw_uniform((num_samples,), *self.scale, generator),
            "shear": around(0, self.shear),
            "translation": around(0, self.translation * self.image_size, 2),
            "contrast": around(1, self.contrast),
            "brightness": around(0, self.brightness),
        }

    def apply(self, images_BCHW: Tensor, params: Params) -> Tensor:
        images = ops.resize(images_BCHW, self.image_size).float().div_(TOP_LEVEL)
        # The inverse of: shear along x, rotate clockwise, scale, translate by pixels.
        angle_B, slope_B = torch.deg2rad(params["angle"]), torch.deg2rad(params["shear"]).tan()
        cos, sin = angle_B.cos(), angle_B.sin()
        linear = torch.stack([cos - slope_B * sin, slope_B * cos + sin, -sin, cos], dim=1) / params["scale"][:, None]
        linear_B22 = linear.unflatten(1, (2, 2))
        # A sum of products instead of a matrix product: TF32 would move pixels.
        offset_B2 = -(linear_B22 * params["translation"][:, None]).sum(2)
        inverse_B23 = torch.cat([linear_B22, offset_B2[:, :, None]], dim=2)
        moved = ops.sample_affine(images, inverse_B23, "bilinear")
        contrasted = moved * params["contrast"][:, None, None, None]
        return contrasted.add_(params["brightness"][:, None, None, None]).clamp_(0, 1)


POLICIES: dict[str, tuple[type[Policy], Mapping[str, Any]]] = {
    "none": (Policy, {}),
    "crop-flip": (CropFlip, {}),
    "autoaugment": (AutoAugment, {}),
    "simaugment": (SimAugment, {}),
    # The supervised form in the code of the paper's authors.
    "simaugment-supervised": (
        SimAugment,
        {"crop_scale": (0.2, 1.0), "jitter": (0.4, 0.4, 0.4, 0.1), "blur": 0.0, "interpolation": "bilinear"},
    ),
    "digits": (Digits, {}),
}
"""Name to a class and the options in which it differs from the class's own defaults."""


def build_policy(text: str, *, image_size: int, channels: int) -> Policy:
    """The policy that `text` describes: a name, then options, as in `simaugment blur=0 crop_scale=0.2,1`.

    The option `size` is the side of this view where it differs from `image_size`.
    """
    name, *assignments = text.split() or [""]
    if name not in POLICIES:
        raise unknown("augmentation", name, POLICIES)
    policy_class, defaults = POLICIES[name]
    options: dict[str, Any] = {**defaults, "image_size": image_size, "channels": channels}
    annotations = annotations_of(policy_class)
    annotations["size"] = annotations.pop("image_size")
    del annotations["channels"]
    for option, value in map(split_assignment, assignments):
        if option not in annotations:
            raise unknown(f"option of augmentation {name!r},", option, annotations)
        options["image_size" if option == "size" else option] = parse(value, annotations[option], f"{name} {option}")
    return policy_class(**options)


@dataclass(frozen=True)
class Crops:
    """The crop of each view of each image in a batch, drawn before any image's size is known.

    SimAugment begins with a crop, so the workers that decode images can crop them at full size. They get these plain
    arrays.
    """

    num_views: int
    groups: tuple[tuple[SimAugment, tuple[int, ...], dict[str, np.ndarray]], ...]
    """A policy, its views, and their parameters that begin with `crop_`, (B, V, …)."""

    def pieces(self, sample: int, height: int, width: int) -> list[Piece]:
        """A piece for each view of one sample; a policy that does not begin with a crop gets the whole image."""
        pieces = [*whole(height, width)] * self.num_views
        for policy, views, drawn in self.groups:
            own = {name: torch.from_numpy(value[sample]) for name, value in drawn.items()}
            boxes_V4 = torch.cat(crop_boxes(own, height, width, policy.crop_ratio), dim=1).int().tolist()
            for view, (top, left, rows, columns) in zip(views, boxes_V4, strict=True):
                pieces[view] = Piece(top, left, rows, columns, policy.interpolation)
        return pieces


def begin_with_crops(policies: Sequence[Policy]) -> bool:
    """Whether decoders have anything to crop. Otherwise every view sees the same resized image."""
    return any(isinstance(policy, SimAugment) for policy in policies)


def crops_of(policies: Sequence[Policy], params: Sequence[Params]) -> Crops:
    """The crops among the parameters of each view, which were drawn on the CPU."""
    groups = []
    for policy in dict.fromkeys(policies):
        if isinstance(policy, SimAugment):
            views = tuple(view for view, other in enumerate(policies) if other is policy)
            names = [name for name in params[views[0]] if name.startswith("crop_")]
            drawn = {name: torch.stack([params[view][name] for view in views], dim=1).numpy() for name in names}
            groups.append((policy, views, drawn))
    return Crops(len(policies), tuple(groups))


def slice_params(params: Params, start: int, stop: int) -> Params:
    """The rows of samples start..stop-1: what one rank needs of the parameters drawn for all."""
    return {name: value[start:stop] for name, value in params.items()}


def normalize(images_BCHW: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """(image - mean) / std by channel, of float images in [0, 1]."""
    device = images_BCHW.device
    mean_C, std_C = ops.constant(tuple(mean), device), ops.constant(tuple(std), device)
    return (images_BCHW - mean_C[:, None, None]).div_(std_C[:, None, None])


def eval_transform(images_BCHW: Tensor, image_size: int, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """The test-time view of uint8 images: resized to `image_size` and normalized."""
    return normalize(ops.resize(images_BCHW, image_size).float().div_(TOP_LEVEL), mean, std)


class Augmenter:
    """Several views of each image, one per policy; views of the same policy object are computed together.

    `backend`: `torch`; `auto`, which uses a Triton kernel on CUDA where one fits; or `fused`, which does so on a CPU
    too, in Triton's interpreter.
    """

    def __init__(
        self,
        policies: Sequence[Policy],
        mean: Sequence[float],
        std: Sequence[float],
        backend: Literal["auto", "torch", "fused"] = "auto",
    ) -> None:
        self.policies, self.backend = list(policies), backend
        self.mean, self.std = tuple(mean), tuple(std)
        self._views_of: dict[Policy, list[int]] = {}
        for view, policy in enumerate(self.policies):
            self._views_of.setdefault(policy, []).append(view)

    def draw(self, num_samples: int, generator: torch.Generator) -> list[Params]:
        """Parameters of each view for `num_samples` images."""
        params: list[Params] = [{}] * len(self.policies)
        for policy, views in self._views_of.items():
            drawn = policy.draw(num_samples * len(views), generator)
            for number, view in enumerate(views):
                params[view] = slice_params(drawn, number * num_samples, (number + 1) * num_samples)
        return params

    def apply(self, images_BCHW: Tensor, params: list[Params], dtype: torch.dtype = torch.float32) -> list[Tensor]:
        """The normalized views of uint8 images, in the order of the policies; channels_last on CUDA.

        Images of five dimensions, (V, B, C, H, W), are views that a decoder has cropped already. Views of one policy
        are parts of one tensor.
        """
        results: dict[int, Tensor] = {}
        for policy, views in self._views_of.items():
            drawn = {name: _joined([params[view][name] for view in views]) for name in params[views[0]]}
            if self._use_kernel(policy, images_BCHW):
                from contune.data.augment.kernels import fused_views

                together = fused_views(policy, images_BCHW, drawn, self.mean, self.std, dtype)
            else:
                if images_BCHW.dim() == 5:
                    pieces_BCHW = torch.cat([images_BCHW[view] for view in views])
                    if isinstance(policy, SimAugment):
                        augmented = policy.apply_cropped(ops.resize(pieces_BCHW, policy.image_size), drawn)
                    else:
                        augmented = policy.apply(pieces_BCHW, drawn)
                else:
                    augmented = policy.apply(images_BCHW.repeat(len(views), 1, 1, 1), drawn)
                layout = torch.channels_last if images_BCHW.device.type == "cuda" else torch.contiguous_format
                together = normalize(augmented, self.mean, self.std).to(dtype, memory_format=layout)
            results |= dict(zip(views, together.chunk(len(views)), strict=True))
        return [results[view] for view in range(len(self.policies))]

    def _use_kernel(self, policy: Policy, images_BCHW: Tensor) -> bool:
        # On a CPU Triton's interpreter runs only on request: it takes milliseconds per image.
        if images_BCHW.dim() == 5 or self.backend == "torch" or not HAS_TRITON:
            return False
        if self.backend == "auto" and images_BCHW.device.type != "cuda":
            return False
        from contune.data.augment.kernels import fits  # needs triton, which a CPU build of torch lacks

        return fits(policy, images_BCHW)


def _joined(parts: list[Tensor]) -> Tensor:
    """The rows of all parts, which have the same shape; without a copy where they are adjacent in memory.

    The views of one policy are, as drawn, unless a rank takes its slice of each.
    """
    first = parts[0]
    starts = [first.data_ptr() + number * first.nbytes for number in range(len(parts))]
    one_storage = len({part.untyped_storage().data_ptr() for part in parts}) == 1
    if one_storage and first.is_contiguous() and [part.data_ptr() for part in parts] == starts:
        return first.as_strided((len(parts) * len(first), *first.shape[1:]), first.stride())
    return torch.cat(parts)
