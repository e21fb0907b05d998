"""Views in one launch each group: Triton kernels beside the policies they are equal to, where one fits.

Images are read as they lie on the device and never repeated; nothing waits for the device, so all of it can be
recorded in a CUDA graph. What each kernel promises is in its file.

B: images, N: views of them, C: channels, H, W: height, width, S: a view's side.
"""

from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from contune.data.augment.authors import AuthorsAutoAugment
from contune.data.augment.autoaugment import AutoAugment
from contune.data.augment.crop_flip import CropFlip, ResizeOnly
from contune.data.augment.policy import Params, Policy
from contune.data.augment.simaugment import SimAugment
from contune.device import HAS_TRITON, interprets_triton
from contune.errors import UserError

KERNELS: dict[type, str] = {
    ResizeOnly: "crop_flip",
    CropFlip: "crop_flip",
    AutoAugment: "autoaugment",
    AuthorsAutoAugment: "autoaugment",
    SimAugment: "simaugment",
}
"""A policy's class, itself and no subclass, to the module of its kernel."""


def is_supported(policy: Policy, images_BCHW: Tensor) -> bool:
    """Whether there is a kernel for these images, on CUDA or, where that was asked for, in Triton's interpreter."""
    return _reason_against(policy, images_BCHW) is None


def check_supported(policy: Policy, images_BCHW: Tensor) -> None:
    reason = _reason_against(policy, images_BCHW)
    if reason is not None:
        raise UserError(f"backend='fused' {reason}; backend='auto' takes another")


def fused_views(
    policy: Policy,
    images_BCHW: Tensor,
    params: Params,
    mean: tuple[float, ...],
    std: tuple[float, ...],
    dtype: torch.dtype = torch.float32,
    *,
    num_views: int = 1,
) -> Tensor:
    """Normalised views (N, C, S, S), channels_last; row n of the parameters, and so view n, is of image n mod B.

    `num_views`: of each image, for a policy without parameters; of others the parameters tell.
    """
    num_rows = len(next(iter(params.values()))) if params else num_views * len(images_BCHW)
    shape = (num_rows, images_BCHW.shape[1], policy.image_size, policy.image_size)
    out_NCHW = torch.empty(shape, dtype=dtype, device=images_BCHW.device, memory_format=torch.channels_last)
    with torch.cuda.device_of(out_NCHW):  # Triton launches on the current device, which may be another
        _kernel(policy).launch(policy, images_BCHW, params, mean, std, out_NCHW)
    return out_NCHW


def _reason_against(policy: Policy, images_BCHW: Tensor) -> str | None:
    if type(policy) not in KERNELS:
        return f"has no kernel for {type(policy).__name__}"
    if images_BCHW.device.type != "cuda" and not interprets_triton():
        return f"needs a CUDA device and the images are on {images_BCHW.device.type}"
    if not HAS_TRITON:
        return "needs the package triton, which comes with torch for CUDA"
    if not _kernel(policy).fits(policy, images_BCHW):
        height, width = images_BCHW.shape[-2:]
        return f"has no kernel for {type(policy).__name__} of {policy.image_size} pixels from {height}×{width}"
    return None


def _kernel(policy: Policy) -> Any:
    """Its module, which needs triton: a CPU-only torch does not bring that."""
    return import_module(f"contune.data.augment.kernels.{KERNELS[type(policy)]}")
