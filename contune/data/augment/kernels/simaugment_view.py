"""One view of one image by SimAugment, whole, in Triton: a program reads its image once and writes its view once.

C: channels, H, W: the image's height, width, S: the view's side; P…: padded to powers of two of at least 16, which
matrix products need.
"""

import triton
import triton.language as tl

from contune.data.augment import lookup
from contune.data.augment.kernels.blur import blur_weights
from contune.data.augment.kernels.color import clamped, jittered, luma
from contune.data.augment.kernels.resampling import box_weights, crop_box, mixed

TOP_LEVEL = tl.constexpr(lookup.TOP_LEVEL)


@triton.jit
def _cropped(plane_ptr, rows_SH, columns_SW, H: tl.constexpr, W: tl.constexpr, PH: tl.constexpr, PW: tl.constexpr):
    """One channel's box at the view's size, in [0, 1]; bicubic overshoots at edges."""
    y_H1, x_1W = tl.arange(0, PH)[:, None], tl.arange(0, PW)[None, :]
    levels_HW = tl.load(plane_ptr + y_H1 * W + x_1W, mask=(y_H1 < H) & (x_1W < W), other=0).to(tl.float32)
    return clamped(mixed(rows_SH, levels_HW, columns_SW) / TOP_LEVEL)


@triton.jit
def _store_plane(out_ptr, plane_SS, at_SS, inside_SS, mean_std_ptr, c: tl.constexpr, C: tl.constexpr):
    normalised_SS = (plane_SS - tl.load(mean_std_ptr + c)) / tl.load(mean_std_ptr + C + c)
    tl.store(out_ptr + at_SS + c, normalised_SS.to(out_ptr.dtype.element_ty), mask=inside_SS)


@triton.jit
def _inverted(plane):
    return tl.where(plane >= 0.5, 1.0 - plane, plane)


@triton.jit
def view_kernel(
    image_ptr, area_ptr, aspect_ptr, position_ptr, flip_ptr, factor_ptr, turn_ptr, order_ptr,
    gray_ptr, sigma_ptr, solarize_ptr, mean_std_ptr, out_ptr, num_images,
    C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, S: tl.constexpr,
    PH: tl.constexpr, PW: tl.constexpr, PS: tl.constexpr,
    CENTRE_H: tl.constexpr, CENTRE_W: tl.constexpr, ATTEMPTS: tl.constexpr, PA: tl.constexpr,
    CUBIC: tl.constexpr, JITTERS: tl.constexpr, GRAYS: tl.constexpr, SOLARIZES: tl.constexpr,
    BLURS: tl.constexpr, RADIUS: tl.constexpr, PT: tl.constexpr,
):  # fmt: skip
    """The steps of SimAugment.apply, then mean and deviation, to a view that is channels-last.

    A step that the policy never takes is not compiled, one that this view does not take is not computed.
    """
    view = tl.program_id(0).to(tl.int64)
    image = image_ptr + (view % num_images) * (C * H * W)
    y_S1, x_1S = tl.arange(0, PS)[:, None], tl.arange(0, PS)[None, :]
    inside_SS = (y_S1 < S) & (x_1S < S)

    top, left, height, width = crop_box(
        area_ptr, aspect_ptr, position_ptr, view, H, W, CENTRE_H, CENTRE_W, ATTEMPTS, PA
    )
    rows_SH = box_weights(top, height, False, S, PH, PS, CUBIC)
    columns_SW = box_weights(left, width, tl.load(flip_ptr + view), S, PW, PS, CUBIC)
    r = _cropped(image, rows_SH, columns_SW, H, W, PH, PW)
    g, b = r, r
    if C == 3:
        g = _cropped(image + H * W, rows_SH, columns_SW, H, W, PH, PW)
        b = _cropped(image + 2 * H * W, rows_SH, columns_SW, H, W, PH, PW)

    if JITTERS:
        r, g, b = jittered(r, g, b, inside_SS, factor_ptr, turn_ptr, order_ptr, view, S * S, C)
    if GRAYS:
        grayed = tl.load(gray_ptr + view)
        if grayed:
            r = luma(r, g, b, C)
            g, b = r, r
    if BLURS:
        sigma = tl.load(sigma_ptr + view)
        if sigma > 0.0:
            weights_SS = blur_weights(sigma, S, RADIUS, PT, PS)
            r = mixed(weights_SS, r, weights_SS)
            g = mixed(weights_SS, g, weights_SS)
            b = mixed(weights_SS, b, weights_SS)
    if SOLARIZES:
        solarized = tl.load(solarize_ptr + view)
        if solarized:
            r, g, b = _inverted(r), _inverted(g), _inverted(b)

    at_SS = view * (S * S * C) + (y_S1 * S + x_1S) * C
    _store_plane(out_ptr, r, at_SS, inside_SS, mean_std_ptr, 0, C)
    if C == 3:
        _store_plane(out_ptr, g, at_SS, inside_SS, mean_std_ptr, 1, C)
        _store_plane(out_ptr, b, at_SS, inside_SS, mean_std_ptr, 2, C)
