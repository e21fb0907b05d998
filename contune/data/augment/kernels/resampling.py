"""Which box of the image a view shows, and the weights that resample it, in Triton; resample.py is the reference.

A: attempts at a crop, I: pixels of the image along one axis, O: pixels of the view along it, all of them padded to
powers of two. Padding has no weight.
"""

import triton
import triton.language as tl


@triton.jit
def rounded(x):
    """To the nearest whole number, halves to the even one, as torch does."""
    low = tl.floor(x)
    excess = x - low
    odd = low != 2.0 * tl.floor(0.5 * low)
    return low + tl.where((excess > 0.5) | ((excess == 0.5) & odd), 1.0, 0.0)


@triton.jit
def crop_box(
    area_ptr, aspect_ptr, position_ptr, view,
    H: tl.constexpr, W: tl.constexpr, CENTRE_H: tl.constexpr, CENTRE_W: tl.constexpr,
    ATTEMPTS: tl.constexpr, PA: tl.constexpr,
):  # fmt: skip
    """Top, left, height and width of the first attempt that fits, or of the centre box when none does.

    Divisions and roots are rounded as IEEE says: a side that is off by one would be another view.
    """
    attempt_A = tl.arange(0, PA)
    drawn_A = attempt_A < ATTEMPTS
    area_A = tl.load(area_ptr + view * ATTEMPTS + attempt_A, mask=drawn_A, other=0.0) * (H * W)
    aspect_A = tl.load(aspect_ptr + view * ATTEMPTS + attempt_A, mask=drawn_A, other=1.0)
    height_A = rounded(tl.sqrt_rn(tl.div_rn(area_A, aspect_A)))
    width_A = rounded(tl.sqrt_rn(area_A * aspect_A))
    fits_A = (height_A > 0) & (height_A <= H) & (width_A > 0) & (width_A <= W)
    first = tl.min(tl.where(fits_A, attempt_A, PA), axis=0)
    some = first < PA
    height = tl.where(some, tl.sum(tl.where(attempt_A == first, height_A, 0.0), axis=0), CENTRE_H)
    width = tl.where(some, tl.sum(tl.where(attempt_A == first, width_A, 0.0), axis=0), CENTRE_W)
    down, right = tl.load(position_ptr + 2 * view), tl.load(position_ptr + 2 * view + 1)
    top = tl.floor(tl.where(some, down * (H - height + 1), 0.5 * (H - height)))
    left = tl.floor(tl.where(some, right * (W - width + 1), 0.5 * (W - width)))
    return top, left, height, width


@triton.jit
def box_weights(start, size, mirrored, NUM_OUT: tl.constexpr, PI: tl.constexpr, PO: tl.constexpr, CUBIC: tl.constexpr):
    """Weights (O, I) that resample the pixels start..start+size-1 of one axis to NUM_OUT pixels."""
    in_I, out_O = tl.arange(0, PI), tl.arange(0, PO)
    step = size / NUM_OUT
    centre_O = start + step * (tl.where(mirrored, NUM_OUT - 1 - out_O, out_O) + 0.5)
    # Shrinking widens the kernel (antialiasing); enlarging leaves it as it is.
    distance_OI = tl.abs((in_I + 0.5)[None, :] - centre_O[:, None]) / tl.maximum(step, 1.0)
    if CUBIC:
        near_OI = (1.5 * distance_OI - 2.5) * distance_OI * distance_OI + 1.0
        far_OI = ((-0.5 * distance_OI + 2.5) * distance_OI - 4.0) * distance_OI + 2.0
        kernel_OI = tl.where(distance_OI < 1.0, near_OI, tl.where(distance_OI < 2.0, far_OI, 0.0))
    else:
        kernel_OI = tl.maximum(1.0 - distance_OI, 0.0)
    inside_I = (in_I >= start) & (in_I < start + size)
    weights_OI = tl.where(inside_I[None, :] & (out_O < NUM_OUT)[:, None], kernel_OI, 0.0)
    total_O = tl.where(out_O < NUM_OUT, tl.sum(weights_OI, axis=1), 1.0)
    return weights_OI / total_O[:, None]


@triton.jit
def _halves(x):
    high = x.to(tl.float16)
    return high, (x - high.to(tl.float32)).to(tl.float16)


@triton.jit
def product(x, y):
    """x · y of float32 on tensor cores, to about 22 bits: each is taken as the sum of two float16.

    Levels and weights are far from float16's ends. Products of three TF32 would be as exact, for twice the registers.
    """
    x_high, x_low = _halves(x)
    y_high, y_low = _halves(y)
    return tl.dot(x_high, y_high, tl.dot(x_high, y_low, tl.dot(x_low, y_high)))


@triton.jit
def mixed(rows_OH, plane_HW, columns_OW):
    """One channel's rows and columns mixed by weights: rows · plane · columnsᵀ."""
    return product(rows_OH, product(plane_HW, tl.trans(columns_OW)))
