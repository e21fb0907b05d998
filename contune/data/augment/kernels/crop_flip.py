"""The plain policies in one launch: a crop of the padded image, mirrored or not, normalised; or just the image.

B: images, N: views, C: channels, H, W: height, width, P: pixels of a program.
"""

import triton
import triton.language as tl
from torch import Tensor

from contune.data.augment.constants import constant
from contune.data.augment.crop_flip import CropFlip, ResizeOnly
from contune.data.augment.kernels.pixels import load_window, store_view
from contune.data.augment.policy import Params

BLOCK = 1024
"""Pixels of a program, so that images may have any number of them."""


@triton.jit
def crop_flip_kernel(
    images_ptr, start_ptr, flip_ptr, mean_std_ptr, out_ptr, num_images, padding,
    stride_image, stride_channel, stride_row, stride_column,
    SIZE: tl.constexpr, C: tl.constexpr, BP: tl.constexpr, MOVES: tl.constexpr,
):  # fmt: skip
    view = tl.program_id(0)
    pixel_P = tl.program_id(1) * BP + tl.arange(0, BP)
    top, left, mirrored = 0, 0, False
    if MOVES:
        top, left = tl.load(start_ptr + 2 * view) - padding, tl.load(start_ptr + 2 * view + 1) - padding
        mirrored = tl.load(flip_ptr + view)
    r_P, g_P, b_P = load_window(
        images_ptr + (view % num_images).to(tl.int64) * stride_image, pixel_P,
        top, left, mirrored, stride_channel, stride_row, stride_column, SIZE, C,
    )  # fmt: skip
    store_view(out_ptr + view.to(tl.int64) * (SIZE * SIZE * C), r_P, g_P, b_P, mean_std_ptr, pixel_P, SIZE, C)


def fits(policy: CropFlip | ResizeOnly, images_BCHW: Tensor) -> bool:
    """Whether the images need no resizing."""
    return images_BCHW.shape[-2:] == (policy.image_size, policy.image_size)


def launch(
    policy: CropFlip | ResizeOnly,
    images_BCHW: Tensor,
    params: Params,
    mean: tuple[float, ...],
    std: tuple[float, ...],
    out_NCHW: Tensor,
) -> None:
    """Normalised views of uint8 images into `out_NCHW`, which is channels_last; view n is of image n mod B."""
    num_views, C, size, _ = out_NCHW.shape
    mean_std = constant((*mean, *std), images_BCHW.device)
    start_N2, flip_N, padding = mean_std, mean_std, 0
    if isinstance(policy, CropFlip):
        start_N2, flip_N, padding = params["crop_start"].contiguous(), params["flip"].contiguous(), policy.padding
    crop_flip_kernel[(num_views, triton.cdiv(size * size, BLOCK))](
        images_BCHW, start_N2, flip_N, mean_std, out_NCHW, len(images_BCHW), padding, *images_BCHW.stride(),
        SIZE=size, C=C, BP=BLOCK, MOVES=isinstance(policy, CropFlip),
        enable_fp_fusion=False,
    )  # fmt: skip
