"""AutoAugment in one launch, with torchvision's operations or those of the paper's authors: a program makes one view,
from the crop to the normalised pixels.

Which operation a view has is known to its whole program, so each is a branch, and only what was drawn is computed.
Levels are whole numbers in float32, truncated where torchvision truncates. No product and sum are contracted and
divisions are rounded correctly, so that colour operations are equal to the torch policy's, and so are torchvision's
shears and translations. Its rotation's sine may differ in its last bit, which moves a pixel only where a coordinate is
a tie but for that; none is with the angles of the policy on images of up to 64 pixels. The splines of the authors
are sums in another order: a level is off by one where a value lies within 1e-4 or so of a half, which is 1 in 50,000.

B: images, N: views, C: channels, H, W: height, width, P: pixels of a view, L: the 256 levels.
"""

import triton
import triton.language as tl
from torch import Tensor

from contune.data.augment.authors import AuthorsAutoAugment
from contune.data.augment.autoaugment import AutoAugment
from contune.data.augment.constants import constant
from contune.data.augment.kernels.color import luma
from contune.data.augment.kernels.moves import ROTATE, ROUNDER, SHEAR_X, moved, nearest_sources
from contune.data.augment.kernels.pixels import load_window, store_view
from contune.data.augment.kernels.spline import spline_moved
from contune.data.augment.policy import Params
from contune.data.augment.spline import to_coefficients
from contune.data.augment.subpolicies import Op

BRIGHTNESS, SHARPNESS = tl.constexpr(Op.BRIGHTNESS.value), tl.constexpr(Op.SHARPNESS.value)
CONTRAST, COLOR = tl.constexpr(Op.CONTRAST.value), tl.constexpr(Op.COLOR.value)
POSTERIZE, SOLARIZE = tl.constexpr(Op.POSTERIZE.value), tl.constexpr(Op.SOLARIZE.value)
INVERT, AUTOCONTRAST = tl.constexpr(Op.INVERT.value), tl.constexpr(Op.AUTOCONTRAST.value)
EQUALIZE = tl.constexpr(Op.EQUALIZE.value)
LARGEST_SIDE = {AutoAugment: 128, AuthorsAutoAugment: 64}
"""Of an image. Up to 64 pixels three planes of it are held in registers; above that they are spilled, and so would be
the matrices of splines."""


@triton.jit
def _smoothed(level_P, pixel_P, SIZE: tl.constexpr, BP: tl.constexpr):
    """A 3×3 mean whose centre weighs 5 of 13, rounded; the outermost pixels stay."""
    before_P, after_P = tl.maximum(pixel_P - 1, 0), tl.minimum(pixel_P + 1, BP - 1)
    above_P, below_P = tl.maximum(pixel_P - SIZE, 0), tl.minimum(pixel_P + SIZE, BP - 1)
    three_P = level_P + tl.gather(level_P, before_P, 0) + tl.gather(level_P, after_P, 0)
    nine_P = three_P + tl.gather(three_P, above_P, 0) + tl.gather(three_P, below_P, 0)
    mean_P = (tl.div_rn(nine_P + 4.0 * level_P, 13.0) + ROUNDER) - ROUNDER
    x_P, y_P = pixel_P % SIZE, pixel_P // SIZE
    inner_P = (x_P > 0) & (x_P < SIZE - 1) & (y_P > 0) & (y_P < SIZE - 1)
    return tl.where(inner_P, mean_P, level_P)


@triton.jit
def _truncated(value_P):
    return tl.floor(tl.minimum(tl.maximum(value_P, 0.0), 255.0))


@triton.jit
def _blended(level_P, other_P, magnitude):
    return _truncated((1.0 + magnitude) * level_P - magnitude * other_P)


@triton.jit
def _mean(level_P, inside_P, NUM: tl.constexpr):
    """Exact up to the division: sums of levels are whole numbers that float32 holds."""
    return tl.div_rn(tl.sum(tl.where(inside_P, level_P, 0.0), axis=0), 1.0 * NUM)


@triton.jit
def _posterized(level_P, bits):
    dropped = 8 - bits.to(tl.int32)
    return ((level_P.to(tl.int32) >> dropped) << dropped).to(tl.float32)


@triton.jit
def _solarized(level_P, threshold):
    return tl.where(level_P >= threshold, 255.0 - level_P, level_P)


@triton.jit
def _autocontrasted(level_P, inside_P):
    """The range stretched to 0…255; a plane of a single level stays."""
    low = tl.min(tl.where(inside_P, level_P, 255.0), axis=0)
    high = tl.max(tl.where(inside_P, level_P, 0.0), axis=0)
    # torch divides a number by a tensor as the number times the reciprocal.
    scale = tl.div_rn(1.0, tl.maximum(high - low, 1.0)) * 255.0
    return tl.where(low == high, level_P, _truncated((level_P - low) * scale))


@triton.jit
def _equalized(level_P, inside_P):
    """Levels spread so that their histogram is as flat as it gets; a plane with too few of them stays."""
    index_P = level_P.to(tl.int32)
    counts_L = tl.histogram(index_P, 256, mask=inside_P)
    below_L = tl.cumsum(counts_L, axis=0) - counts_L
    # Pillow's rule: the pixels of the brightest level do not count.
    brightest = tl.max(tl.where(inside_P, index_P, 0), axis=0)
    step = tl.sum((inside_P & (index_P < brightest)).to(tl.int32), axis=0) // 255
    table_L = tl.minimum((below_L + step // 2) // tl.maximum(step, 1), 255)
    return tl.where(step == 0, level_P, tl.gather(table_L, index_P, 0).to(tl.float32))


@triton.jit
def autoaugment_kernel(
    images_ptr, start_ptr, flip_ptr, op_ptr, magnitude_ptr, mean_std_ptr, to_coefficients_ptr, out_ptr,
    num_images, padding, stride_image, stride_channel, stride_row, stride_column,
    SIZE: tl.constexpr, C: tl.constexpr, BP: tl.constexpr, PN: tl.constexpr, STEPS: tl.constexpr,
):  # fmt: skip
    view = tl.program_id(0)
    pixel_P = tl.arange(0, BP)
    inside_P = pixel_P < SIZE * SIZE
    r_P, g_P, b_P = load_window(
        images_ptr + (view % num_images).to(tl.int64) * stride_image, pixel_P,
        tl.load(start_ptr + 2 * view) - padding, tl.load(start_ptr + 2 * view + 1) - padding,
        tl.load(flip_ptr + view), stride_channel, stride_row, stride_column, SIZE, C,
    )  # fmt: skip
    for step in range(STEPS):
        op = tl.load(op_ptr + STEPS * view + step)
        m = tl.load(magnitude_ptr + STEPS * view + step)
        if (op >= SHEAR_X) & (op <= ROTATE):
            if to_coefficients_ptr is None:
                source_P = nearest_sources(op, m, pixel_P, SIZE)
                r_P, g_P, b_P = moved(r_P, source_P), moved(g_P, source_P), moved(b_P, source_P)
            else:
                r_P, g_P, b_P = spline_moved(r_P, g_P, b_P, op, m, pixel_P, to_coefficients_ptr, SIZE, C, BP, PN)
        elif op == BRIGHTNESS:
            r_P, g_P, b_P = _blended(r_P, 0.0, m), _blended(g_P, 0.0, m), _blended(b_P, 0.0, m)
        elif (op == CONTRAST) | ((op == COLOR) & (C == 3)):  # torchvision's saturation keeps a gray image
            gray_P = luma(r_P, g_P, b_P, C)
            gray_P = tl.floor(gray_P)
            if op == CONTRAST:
                gray_P = tl.zeros_like(gray_P) + _mean(gray_P, inside_P, SIZE * SIZE)
            r_P, g_P, b_P = _blended(r_P, gray_P, m), _blended(g_P, gray_P, m), _blended(b_P, gray_P, m)
        elif op == SHARPNESS:
            r_P = _blended(r_P, _smoothed(r_P, pixel_P, SIZE, BP), m)
            g_P = _blended(g_P, _smoothed(g_P, pixel_P, SIZE, BP), m)
            b_P = _blended(b_P, _smoothed(b_P, pixel_P, SIZE, BP), m)
        elif op == POSTERIZE:
            r_P, g_P, b_P = _posterized(r_P, m), _posterized(g_P, m), _posterized(b_P, m)
        elif op == SOLARIZE:
            r_P, g_P, b_P = _solarized(r_P, m), _solarized(g_P, m), _solarized(b_P, m)
        elif op == INVERT:
            r_P, g_P, b_P = 255.0 - r_P, 255.0 - g_P, 255.0 - b_P
        elif op == AUTOCONTRAST:
            r_P, g_P = _autocontrasted(r_P, inside_P), _autocontrasted(g_P, inside_P)
            b_P = _autocontrasted(b_P, inside_P)
        elif op == EQUALIZE:
            r_P, g_P, b_P = _equalized(r_P, inside_P), _equalized(g_P, inside_P), _equalized(b_P, inside_P)
    store_view(out_ptr + view.to(tl.int64) * (SIZE * SIZE * C), r_P, g_P, b_P, mean_std_ptr, pixel_P, SIZE, C)


def fits(policy: AutoAugment | AuthorsAutoAugment, images_BCHW: Tensor) -> bool:
    """Whether the images need no resizing and a program can hold one."""
    size = policy.image_size
    return images_BCHW.shape[-2:] == (size, size) and size <= LARGEST_SIDE[type(policy)]


def launch(
    policy: AutoAugment | AuthorsAutoAugment,
    images_BCHW: Tensor,
    params: Params,
    mean: tuple[float, ...],
    std: tuple[float, ...],
    out_NCHW: Tensor,
) -> None:
    """Normalised views of uint8 images into `out_NCHW`, which is channels_last; view n is of image n mod B."""
    num_views, C, size, _ = out_NCHW.shape
    device, is_spline = images_BCHW.device, isinstance(policy, AuthorsAutoAugment)
    block, side = max(128, triton.next_power_of_2(size * size)), max(16, triton.next_power_of_2(size))
    drawn = [params[name].contiguous() for name in ("crop_start", "flip", "op", "magnitude")]
    # 8 pixels a thread, and for small images a pixel for every thread.
    num_warps, most_registers = min(32, max(4, block // 256)), None
    if is_spline:  # which takes more registers: up to 32 pixels as many as leave room for two views a multiprocessor
        num_warps, most_registers = 4 if side == 16 else 8, 128 if side <= 32 else None
    autoaugment_kernel[(num_views,)](
        images_BCHW, *drawn, constant((*mean, *std), device),
        to_coefficients(size, device) if is_spline else None, out_NCHW,
        len(images_BCHW), policy.padding, *images_BCHW.stride(),
        SIZE=size, C=C, BP=block, PN=side, STEPS=params["op"].shape[1],
        num_warps=num_warps, num_stages=1, maxnreg=most_registers, enable_fp_fusion=False,
    )  # fmt: skip
