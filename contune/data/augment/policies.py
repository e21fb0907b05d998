"""Policies by name, and the Augmenter, which turns a batch of images into the views that a method sees.

A policy draws random parameters for every sample from a generator and then applies them to the whole batch. The same
parameters drive the torch operations and the Triton kernels, so the two can be compared pixel by pixel.

B: samples, V: views of one policy, C: channels, H, W: height, width.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from contune import distributed
from contune.data.augment import ops
from contune.data.augment.autoaugment import AutoAugment, CropFlip
from contune.data.augment.ops import TOP_LEVEL, Params, Policy
from contune.data.augment.simaugment import Crops, SimAugment
from contune.device import HAS_TRITON
from contune.errors import UserError, check_known
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
        shape, shift = (num_samples,), self.translation * self.image_size
        return {
            "angle": ops.draw_uniform(shape, -self.rotation, self.rotation, generator),
            "scale": ops.draw_uniform(shape, *self.scale, generator),
            "shear": ops.draw_uniform(shape, -self.shear, self.shear, generator),
            "translation": ops.draw_uniform((num_samples, 2), -shift, shift, generator),
            "contrast": ops.draw_uniform(shape, 1 - self.contrast, 1 + self.contrast, generator),
            "brightness": ops.draw_uniform(shape, -self.brightness, self.brightness, generator),
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


Transform = Callable[[Tensor], Tensor]
"""Makes a view of one image: uint8 (C, H, W) in, uint8 or float from 0 to 1 (C, H, W) out, of any size."""


@dataclass(frozen=True, kw_only=True, eq=False)
class OwnTransform(Policy):
    """A function of your own, called with each image by itself on the CPU.

    Each call starts from its own seed of torch's random numbers, so that a run can be repeated and resumed.
    """

    function: Transform

    def draw(self, num_samples: int, generator: torch.Generator) -> Params:
        return {"seed": torch.randint(2**31, (num_samples,), generator=generator, device=generator.device)}

    def apply(self, images_BCHW: Tensor, params: Params) -> Tensor:
        views = []
        with torch.random.fork_rng(devices=[]):
            for image_CHW, seed in zip(images_BCHW.cpu(), params["seed"].tolist(), strict=True):
                torch.default_generator.manual_seed(seed)
                view = self.function(image_CHW)
                if not isinstance(view, Tensor) or view.dim() != 3 or view.shape[0] != self.channels:
                    got = tuple(view.shape) if isinstance(view, Tensor) else type(view).__name__
                    raise UserError(f"the transform must return a tensor ({self.channels}, H, W) and returned {got}")
                view_1CHW = view[None].float() if view.is_floating_point() else view[None].float().div_(TOP_LEVEL)
                size = (self.image_size, self.image_size)
                views.append(F.interpolate(view_1CHW, size=size, mode="bilinear", antialias=True))
        views_BCHW = torch.cat(views)
        low, high = views_BCHW.aminmax()
        if low < -ROUNDING or high > 1 + ROUNDING:
            raise UserError(
                f"the transform returns floats from {low:.3g} to {high:.3g}, and they must be between 0 and 1; leave "
                "the normalization to contune"
            )
        return views_BCHW.clamp_(0, 1).to(images_BCHW.device)


OWN_TRANSFORM = "transform:"
"""What `augment.policy` begins with if it is an `OwnTransform`."""
ROUNDING = 1e-3


def transform_name(function: Transform) -> str:
    """`transform:Compose-1a2b3c4d`, with a digest of its description or, for a function, of its code."""
    code = getattr(function, "__code__", None)
    text = repr(function) if code is None else f"{code.co_code!r} {code.co_consts!r}"
    digest = hashlib.sha256(re.sub(r" at 0x[0-9a-f]+", "", text).encode()).hexdigest()
    name = getattr(function, "__name__", type(function).__name__)
    return f"{OWN_TRANSFORM}{name}-{digest[:8]}"


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
"""Name to a class, and the options in which it differs from the class's defaults."""


def build_policy(text: str, *, image_size: int, channels: int) -> Policy:
    """The policy that `text` describes: a name, then options, as in `simaugment blur=0 crop_scale=0.2,1`.

    The option `size` is the side of this view where it differs from `image_size`.
    """
    name, *assignments = text.split() or [""]
    if name.startswith(OWN_TRANSFORM):
        raise UserError(f"augment.policy={name} is a function of your own, which is not saved; set another policy")
    check_known("augmentation", name, POLICIES)
    policy_class, defaults = POLICIES[name]
    options: dict[str, Any] = {**defaults, "image_size": image_size, "channels": channels}
    annotations = annotations_of(policy_class)
    annotations["size"] = annotations.pop("image_size")
    del annotations["channels"]
    for option, value in map(split_assignment, assignments):
        check_known(f"option of augmentation {name!r},", option, annotations)
        options["image_size" if option == "size" else option] = parse(value, annotations[option], f"{name} {option}")
    return policy_class(**options)


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
        self.views_of: dict[Policy, list[int]] = {}
        for view, policy in enumerate(self.policies):
            self.views_of.setdefault(policy, []).append(view)

    def draw(self, num_samples: int, generator: torch.Generator, rows: slice = slice(None)) -> list[Params]:
        """Parameters of each policy for `num_samples` images, those of its first view first.

        rows: which of the images to return parameters for. A rank needs only some of what is drawn for all.
        """
        drawn = [policy.draw(num_samples * len(views), generator) for policy, views in self.views_of.items()]
        return self._some(drawn, rows)

    def _some(self, params: list[Params], rows: slice) -> list[Params]:
        """The parameters of some of the images."""
        some = []
        for views, drawn in zip(self.views_of.values(), params, strict=True):
            by_view = {name: value.unflatten(0, (len(views), -1)) for name, value in drawn.items()}
            some.append({name: value[:, rows].flatten(0, 1) for name, value in by_view.items()})
        return some

    def apply(
        self, images_BCHW: Tensor, params: list[Params], dtype: torch.dtype = torch.float32, at_once: int = 0
    ) -> list[Tensor]:
        """The normalized views of uint8 images, in the order of the policies; channels_last on CUDA.

        Images of five dimensions, (V, B, C, H, W), are views that a decoder has cropped already. Views of one policy
        are parts of one tensor.

        at_once: augment so many images at a time, because float32 copies of a large batch would not fit; 0: all.
        """
        num = images_BCHW.shape[-4]
        if 0 < at_once < num:
            parts = [slice(start, start + at_once) for start in range(0, num, at_once)]
            applied = [self.apply(images_BCHW[..., rows, :, :, :], self._some(params, rows), dtype) for rows in parts]
            return [torch.cat(pieces) for pieces in zip(*applied, strict=True)]
        on_gpu, are_crops = images_BCHW.is_cuda, images_BCHW.dim() == 5
        # On a CPU Triton's interpreter runs only on request: it takes milliseconds per image.
        may_fuse = HAS_TRITON and not are_crops and (self.backend == "fused" or (self.backend == "auto" and on_gpu))
        if may_fuse:
            from contune.data.augment import kernels  # needs triton, which a CPU build of torch lacks
        results: dict[int, Tensor] = {}
        for (policy, views), drawn in zip(self.views_of.items(), params, strict=True):
            if may_fuse and kernels.fits(policy, images_BCHW):
                together = kernels.fused_views(policy, images_BCHW, drawn, self.mean, self.std, dtype)
            else:
                if are_crops:
                    augmented = policy.apply_cropped(torch.cat([images_BCHW[view] for view in views]), drawn)
                else:
                    augmented = policy.apply(images_BCHW.repeat(len(views), 1, 1, 1), drawn)
                layout = torch.channels_last if on_gpu else torch.contiguous_format
                together = normalize(augmented, self.mean, self.std).to(dtype, memory_format=layout)
            results |= dict(zip(views, together.chunk(len(views)), strict=True))
        return [results[view] for view in range(len(self.policies))]

    def crops_of_steps(
        self, num_samples: int, generators: Iterable[torch.Generator], rows: slice = slice(None)
    ) -> Iterator[Crops] | None:
        """What a streaming loader cuts out of its pictures, drawn on the host from each step's own generator.

        None if decoders have nothing to crop: then every view sees the same resized image.
        """
        if SimAugment not in map(type, self.policies):
            return None
        return (self.crops(self.draw(num_samples, generator, rows)) for generator in generators)

    def crops(self, params: list[Params]) -> Crops:
        """The crops among parameters that were drawn on the CPU."""
        groups = []
        for (policy, views), drawn in zip(self.views_of.items(), params, strict=True):
            if isinstance(policy, SimAugment):
                by_image = {}
                for name in ("crop_area", "crop_aspect", "crop_position"):
                    value_BV = drawn[name].unflatten(0, (len(views), -1)).transpose(0, 1)
                    by_image[name] = value_BV.contiguous().numpy()
                groups.append((policy, tuple(views), by_image))
        return Crops(len(self.policies), tuple(groups))


class Mix(NamedTuple):
    """CutMix (Yun et al. 2019) or Mixup (Zhang et al. 2018) of augmented views, within the global batch.

        for each image i, with probability `probability`:
            j = another image of the batch, λ ~ Beta(α, α)
            each view v of i becomes λ · v_i + (1 - λ) · v_j          Mixup
            or v_i with a square of the area 1 - λ from v_j           CutMix
            its labels become λ · y_i + (1 - λ) · y_j

    All views of an image share the partner and λ. So they stay views of one image, positives of each other also
    without labels, and one row of the label matrix is true of all of them. CutMix's square lies elsewhere in each view,
    or the views would agree on where it is. It lies inside the image, so that λ is its area to the pixel.
    """

    kind: str
    alpha: float
    probability: float
    num_classes: int

    def __call__(
        self, views: Sequence[Tensor], labels_B: Tensor | None, generator: torch.Generator
    ) -> tuple[list[Tensor], Tensor | None]:
        """The mixed views, and a (B, K) matrix of labels. Drawn for the images of all processes; B of them are here."""
        num, device = len(views[0]), generator.device
        num_all, start = num * distributed.world_size(), num * distributed.rank()
        rows = slice(start, start + num)
        partner_B = torch.rand(num_all, generator=generator, device=device).argsort()[rows]
        # Beta(α, α) from two gamma variables; torch.distributions takes no generator.
        gamma_2N = torch._standard_gamma(torch.full((2, num_all), self.alpha, device=device), generator=generator)
        mixed_N = ops.draw_chance(num_all, self.probability, generator)
        other_B = torch.where(mixed_N, gamma_2N[0] / gamma_2N.sum(dim=0), 0.0)[rows]
        corner_BV2 = torch.rand(num_all, len(views), 2, generator=generator, device=device)[rows]
        if self.kind == "cutmix":
            size = views[0].shape[-1]
            other_B = (other_B.sqrt() * size).round().div_(size).square_()
        mixed = [self._view(view, partner_B, other_B, corner_BV2[:, v]) for v, view in enumerate(views)]
        if labels_B is None:
            return mixed, None
        labels_BK = F.one_hot(labels_B, self.num_classes).float() if labels_B.dim() == 1 else labels_B
        return mixed, torch.lerp(labels_BK, distributed.gather(labels_BK)[partner_B], other_B[:, None])

    def _view(self, own_BCHW: Tensor, partner_B: Tensor, other_B: Tensor, corner_B2: Tensor) -> Tensor:
        other_BCHW, result = distributed.gather(own_BCHW)[partner_B], torch.empty_like(own_BCHW)  # keeps channels_last
        if self.kind == "mixup":
            return torch.lerp(own_BCHW, other_BCHW, other_B.to(own_BCHW.dtype)[:, None, None, None], out=result)
        size = own_BCHW.shape[-1]
        side_B11 = (other_B.sqrt() * size).round()[:, None, None]
        start_B21 = (corner_B2[:, :, None] * (size - side_B11 + 1)).floor()
        place_S = ops.count_to(size, own_BCHW.device)
        inside_B2S = (place_S >= start_B21) & (place_S < start_B21 + side_B11)
        square_B1HW = inside_B2S[:, None, 0, :, None] & inside_B2S[:, None, 1, None, :]
        return torch.where(square_B1HW, other_BCHW, own_BCHW, out=result)
