"""How a program reads pixels P of an image as planes of levels, and writes planes as a view.

Triton wants powers of two, so the pixels may go on past the end of the image; those are neither read nor written.
"""

import triton
import triton.language as tl


@triton.jit
def load_window(
    image_ptr, pixel_P, top, left, mirrored, stride_channel, stride_row, stride_column,
    SIZE: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Red, green and blue in float32 of the SIZE × SIZE window that begins at (top, left) of an image of that size.

    Levels outside the image are 0. A gray image is held as three equal planes.
    """
    row_P = (pixel_P // SIZE + top).to(tl.int32)
    column_P = pixel_P % SIZE
    column_P = (tl.where(mirrored, SIZE - 1 - column_P, column_P) + left).to(tl.int32)
    inside_P = (row_P >= 0) & (row_P < SIZE) & (column_P >= 0) & (column_P < SIZE) & (pixel_P < SIZE * SIZE)
    at_P = image_ptr + row_P * stride_row + column_P * stride_column
    r_P = tl.load(at_P, mask=inside_P, other=0).to(tl.float32)
    g_P, b_P = r_P, r_P
    if C == 3:
        g_P = tl.load(at_P + stride_channel, mask=inside_P, other=0).to(tl.float32)
        b_P = tl.load(at_P + 2 * stride_channel, mask=inside_P, other=0).to(tl.float32)
    return r_P, g_P, b_P


@triton.jit
def _store_plane(view_ptr, level_P, mean_std_ptr, pixel_P, channel: tl.constexpr, SIZE: tl.constexpr, C: tl.constexpr):
    mean, std = tl.load(mean_std_ptr + channel), tl.load(mean_std_ptr + C + channel)
    # Divisions are rounded as torch does, so that equal levels are equal to the last bit.
    normal_P = tl.div_rn(tl.div_rn(level_P, 255.0) - mean, std)
    tl.store(view_ptr + pixel_P * C + channel, normal_P.to(view_ptr.dtype.element_ty), mask=pixel_P < SIZE * SIZE)


@triton.jit
def store_view(view_ptr, r_P, g_P, b_P, mean_std_ptr, pixel_P, SIZE: tl.constexpr, C: tl.constexpr):
    """(level / 255 - mean) / std in channels-last order; `mean_std_ptr`: C means, then C standard deviations."""
    _store_plane(view_ptr, r_P, mean_std_ptr, pixel_P, 0, SIZE, C)
    if C == 3:
        _store_plane(view_ptr, g_P, mean_std_ptr, pixel_P, 1, SIZE, C)
        _store_plane(view_ptr, b_P, mean_std_ptr, pixel_P, 2, SIZE, C)
