"""What a policy is, and the image operations that several policies share, in torch.

The operations work on whole batches, with different parameters in every sample. kernels.py has the Triton versions.

B: samples, C: channels, H, W: height, width, S: steps.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from contune.errors import UserError
from contune.settings import check

Params = dict[str, Tensor]
"""Random parameters by name; the first dimension of each is the number of samples."""

NUM_LEVELS = 256
TOP_LEVEL = NUM_LEVELS - 1
LUMA = (0.2989, 0.587, 0.114)
"""torchvision's weights of red, green and blue in a gray image."""


# ---------------------------------------------------------------------------- constants, draws, policies


def constant(values: tuple[float, ...], device: torch.device, dtype: torch.dtype = torch.float32) -> Tensor:
    """A small tensor, cached per device: copying it there at every step would cost a launch each."""
    if torch.compiler.is_compiling():  # compiled code cannot see the cache
        return torch.tensor(values, dtype=dtype, device=device)
    return _cached_constant(values, device, dtype)


# The caches never evict, since a captured CUDA graph may still read the tensors. They never hold inference tensors,
# since a constant that an evaluation made first may take part in a backward pass later.
@cache
@torch.inference_mode(False)
def _cached_constant(values: tuple[float, ...], device: torch.device, dtype: torch.dtype) -> Tensor:
    return torch.tensor(values, dtype=dtype, device=device)


@cache
@torch.inference_mode(False)
def count_to(num: int, device: torch.device, dtype: torch.dtype = torch.float32) -> Tensor:
    """0, 1, …, num - 1, cached per device."""
    return torch.arange(num, dtype=dtype, device=device)


def draw_chance(num_samples: int, probability: float, generator: torch.Generator) -> Tensor:
    """True with `probability`, independently for each sample."""
    return torch.rand(num_samples, generator=generator, device=generator.device) < probability


def draw_uniform(shape: tuple[int, ...], low: float, high: float, generator: torch.Generator) -> Tensor:
    return low + (high - low) * torch.rand(shape, generator=generator, device=generator.device)


def check_interval(name: str, interval: tuple[float, float], high: float = float("inf")) -> None:
    """`interval` is (smallest, largest): above 0, at most `high`."""
    if len(interval) != 2 or not 0 < interval[0] <= interval[1] <= high:
        raise UserError(f"{name} must be two numbers above 0 and up to {high:g}, the smaller first, got {interval}")


@dataclass(frozen=True, kw_only=True, eq=False)
class Policy:
    """One kind of view; this one is the image itself, resized. Row i of the parameters and image i decide result i.

    A policy is a frozen dataclass whose other fields are its options.
    """

    image_size: int = field(metadata={"low": 1})
    """The side of a view, in pixels."""
    channels: int = field(metadata={"low": 1})

    def __post_init__(self) -> None:
        check(self, "")

    def draw(self, num_samples: int, generator: torch.Generator) -> Params:
        """Random parameters for `num_samples` images, on the generator's device."""
        return {}

    def apply(self, images_BCHW: Tensor, params: Params) -> Tensor:
        """uint8 images (B, C, H, W) to float32 in [0, 1] of (B, C, size, size); nothing random in it."""
        return resize(images_BCHW, self.image_size).float().div_(TOP_LEVEL)

    def apply_cropped(self, crops_BCHW: Tensor, params: Params) -> Tensor:
        """What `apply` does after the crop, if it begins with one."""
        return self.apply(crops_BCHW, params)


# ---------------------------------------------------------------------------- geometry


def resize(images_BCHW: Tensor, size: int) -> Tensor:
    """uint8 images resized to (size, size) whatever their aspect ratio: bilinear, antialiased, rounded to levels."""
    if images_BCHW.shape[-2:] == (size, size):
        return images_BCHW
    resized = F.interpolate(images_BCHW.float(), size=(size, size), mode="bilinear", antialias=True)
    return resized.round_().to(torch.uint8)


def crop_flip(images_BCHW: Tensor, start_B2: Tensor, flip_B: Tensor, padding: int) -> Tensor:
    """Zero padding on all sides, a crop of the original size from (top, left), then a horizontal flip.

    A row of the result is W neighboring pixels of a padded image or of its mirror image. So one `index_select` picks
    the rows from all such windows of both.
    """
    B, C, H, W = images_BCHW.shape
    device = images_BCHW.device
    padded = F.pad(torch.stack([images_BCHW, images_BCHW.flip(3)]), [padding] * 4).contiguous()
    top_B, left_B = start_B2.unbind(1)
    left_B = torch.where(flip_B, 2 * padding - left_B, left_B)
    image_BC = (flip_B * B + count_to(B, device, torch.int64))[:, None] * C + count_to(C, device, torch.int64)
    row_BCH = (image_BC * (H + 2 * padding) + top_B[:, None])[:, :, None] + count_to(H, device, torch.int64)
    window_BCH = row_BCH * (W + 2 * padding) + left_B[:, None, None]
    windows = padded.as_strided((max(0, padded.numel() - W + 1), W), (1, 1))
    return windows.index_select(0, window_BCH.view(-1)).view(B, C, H, W)


def sample_affine(images_BCHW: Tensor, inverse_B23: Tensor, mode: str) -> Tensor:
    """The image at `inverse_B23` of every output pixel; zero outside. `mode`: nearest or bilinear.

    The matrix maps output (x, y, 1) to input (x, y) in pixels from the image's center, as torchvision's does.
    """
    H, W = images_BCHW.shape[-2:]
    device = images_BCHW.device
    # Sums of products instead of a matrix product: TF32 would move pixels.
    scaled_B23 = inverse_B23 / constant((0.5 * W, 0.5 * H), device)[:, None]
    x_W1 = (count_to(W, device) - (W - 1) / 2)[:, None]
    y_H1 = (count_to(H, device) - (H - 1) / 2)[:, None]
    along_x_BW2 = x_W1 * scaled_B23[:, None, :, 0] + scaled_B23[:, None, :, 2]
    along_y_BH2 = y_H1 * scaled_B23[:, None, :, 1]
    grid_BHW2 = along_x_BW2[:, None] + along_y_BH2[:, :, None]
    return F.grid_sample(images_BCHW, grid_BHW2, mode=mode, padding_mode="zeros", align_corners=False)


def gray(images_BCHW: Tensor) -> Tensor:
    """The luma (B, 1, H, W); a one-channel image is its own, and channels that are no colors have their mean."""
    if images_BCHW.shape[1] != 3:
        return images_BCHW if images_BCHW.shape[1] == 1 else images_BCHW.mean(1, keepdim=True)
    red, green, blue = (images_BCHW[:, c] * weight for c, weight in enumerate(LUMA))
    return red.add_(green).add_(blue)[:, None]


# ---------------------------------------------------------------------------- a different operation in every sample


def host_can_read(images: Tensor) -> bool:
    """Whether the host can branch on the values of a tensor without waiting for a device.

    On a CPU every operation is computed only for the samples that use it. A GPU would have to synchronize with the
    host, which a CUDA graph forbids. There all samples go through every operation, with parameters that change nothing
    in all but their own.
    """
    return images.device.type == "cpu"


def where_chosen(images_BCHW: Tensor, chosen_B: Tensor, change: Callable[..., Tensor], *amounts_B: Tensor) -> Tensor:
    """`change(images, *amounts)` of the chosen samples; the others stay unchanged."""
    if not host_can_read(images_BCHW):
        return torch.where(chosen_B[:, None, None, None], change(images_BCHW, *amounts_B), images_BCHW)
    rows = chosen_B.nonzero()[:, 0]
    some_BCHW = change(images_BCHW.index_select(0, rows), *(amount_B.index_select(0, rows) for amount_B in amounts_B))
    return images_BCHW.index_copy(0, rows, some_BCHW)
