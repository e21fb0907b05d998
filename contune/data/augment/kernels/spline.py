"""Moving the pixels of one view by an affine map with cubic B-splines, in Triton; contune.data.augment.spline is the
reference.

P: pixels of a view, N: pixels along one axis, M: coefficients, N · N of them; N is padded to a power of two of at
least 16, which matrix products need.
"""

import triton
import triton.language as tl

from contune.data.augment import authors
from contune.data.augment.kernels.moves import SHEAR_X, SHEAR_Y, TRANSLATE_X, TRANSLATE_Y, from_centre, inverse_matrix
from contune.data.augment.kernels.resampling import product

PIVOT = tl.constexpr(authors.PIVOT)


@triton.jit
def _coefficients(
    level_P, upright, sideways, to_coefficients_ptr, SIZE: tl.constexpr, BP: tl.constexpr, PN: tl.constexpr
):
    """Those of splines through the pixels of one plane, down its columns, along its rows or both; rows of PN."""
    level_M = level_P
    if SIZE != PN:  # padding has some pixel's level, and no weight
        at_M = tl.arange(0, PN * PN)
        level_M = tl.gather(level_P, tl.minimum(at_M // PN * SIZE + at_M % PN, BP - 1), 0)
    plane_NN = tl.reshape(level_M, (PN, PN))
    row_N1, column_1N = tl.arange(0, PN)[:, None], tl.arange(0, PN)[None, :]
    inside_NN = (row_N1 < SIZE) & (column_1N < SIZE)
    inverse_NN = tl.load(to_coefficients_ptr + row_N1 * SIZE + column_1N, mask=inside_NN, other=0.0)
    identity_NN = (row_N1 == column_1N).to(tl.float32)
    for axis in range(2):
        filtered = tl.where(axis == 0, upright, sideways)
        plane_NN = tl.trans(product(tl.where(filtered, inverse_NN, identity_NN), plane_NN))
    return tl.reshape(plane_NN, (PN * PN,))


@triton.jit
def _tap(position_P, tap, SIZE: tl.constexpr):
    """Number `tap` of the four coefficients around a position on one axis, and its weight."""
    at_P = tl.floor(position_P) + (tap - 1.0)
    distance_P = tl.abs(position_P - at_P)
    beyond_P = 2.0 - distance_P
    near_P = (0.5 * distance_P - 1.0) * distance_P * distance_P + 2 / 3
    weight_P = tl.where(distance_P < 1.0, near_P, beyond_P * beyond_P * beyond_P * (1 / 6))
    mirrored_P = (SIZE - 1) - tl.abs((SIZE - 1) - tl.abs(at_P))
    return tl.maximum(mirrored_P, 0.0).to(tl.int32), weight_P  # far outside even a mirrored one is negative


@triton.jit
def _levels(value_P, inside_P):
    return tl.where(inside_P, tl.minimum(tl.maximum(tl.floor(value_P + 0.5), 0.0), 255.0), 0.0)


@triton.jit
def spline_moved(
    r_P, g_P, b_P, op, magnitude, pixel_P, to_coefficients_ptr,
    SIZE: tl.constexpr, C: tl.constexpr, BP: tl.constexpr, PN: tl.constexpr,
):  # fmt: skip
    """The planes, in levels, after a shear, translation or rotation about the pivot of the paper's authors.

    All but rotations move pixels along one axis. On the other one they stay, and a spline there is the pixels: it needs
    neither coefficients nor the sum of four.
    """
    upright, sideways = (op != SHEAR_X) & (op != TRANSLATE_X), (op != SHEAR_Y) & (op != TRANSLATE_Y)
    r_M = _coefficients(r_P, upright, sideways, to_coefficients_ptr, SIZE, BP, PN)
    g_M, b_M = r_M, r_M
    if C == 3:
        g_M = _coefficients(g_P, upright, sideways, to_coefficients_ptr, SIZE, BP, PN)
        b_M = _coefficients(b_P, upright, sideways, to_coefficients_ptr, SIZE, BP, PN)

    a, b, c, d, e, f = inverse_matrix(op, magnitude, PIVOT, PIVOT)
    x_P, y_P = from_centre(pixel_P, SIZE)
    # The order of `sample_spline`, and so its rounding, decides which pixels are inside.
    column_P = a * x_P + (b * y_P + c) + 0.5 * (SIZE - 1)
    row_P = e * y_P + (d * x_P + f) + 0.5 * (SIZE - 1)
    r_P, g_P, b_P = tl.zeros_like(r_P), tl.zeros_like(g_P), tl.zeros_like(b_P)
    for tap in range(16):
        down, right = tap // 4, tap % 4
        if (upright | (down == 1)) & (sideways | (right == 1)):
            y_at_P, y_weight_P = _tap(row_P, down, SIZE)
            x_at_P, x_weight_P = _tap(column_P, right, SIZE)
            at_P = y_at_P * PN + x_at_P
            weight_P = tl.where(upright, y_weight_P, 1.0) * tl.where(sideways, x_weight_P, 1.0)
            r_P += weight_P * tl.gather(r_M, at_P, 0)
            if C == 3:
                g_P += weight_P * tl.gather(g_M, at_P, 0)
                b_P += weight_P * tl.gather(b_M, at_P, 0)
    inside_P = (column_P >= 0) & (column_P <= SIZE - 1) & (row_P >= 0) & (row_P <= SIZE - 1)
    r_P = _levels(r_P, inside_P)
    if C == 1:
        return r_P, r_P, r_P
    return r_P, _levels(g_P, inside_P), _levels(b_P, inside_P)
