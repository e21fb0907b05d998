"""The affine maps of AutoAugment's operations, and moving pixels by them as torchvision does, in Triton;
contune.data.augment.moves is the reference. The other way to move them is in spline.py.

P: pixels of a view.
"""

import triton
import triton.language as tl

from contune.data.augment.subpolicies import Op

SHEAR_X, SHEAR_Y = tl.constexpr(Op.SHEAR_X.value), tl.constexpr(Op.SHEAR_Y.value)
TRANSLATE_X, TRANSLATE_Y = tl.constexpr(Op.TRANSLATE_X.value), tl.constexpr(Op.TRANSLATE_Y.value)
ROTATE = tl.constexpr(Op.ROTATE.value)
RADIANS = tl.constexpr(0.017453292519943295)
ROUNDER = tl.constexpr(12582912.0)
"""1.5 · 2^23, which leaves a float32 no bits for a fraction: adding it rounds, halves to even."""


@triton.jit
def inverse_matrix(op, magnitude, SHEAR_ABOUT: tl.constexpr, TURN_ABOUT: tl.constexpr):
    """That of `inverse_matrices`, row by row."""
    shear_x, shear_y = tl.where(op == SHEAR_X, magnitude, 0.0), tl.where(op == SHEAR_Y, magnitude, 0.0)
    right, down = tl.where(op == TRANSLATE_X, magnitude, 0.0), tl.where(op == TRANSLATE_Y, magnitude, 0.0)
    angle = tl.where(op == ROTATE, magnitude, 0.0) * RADIANS
    cos, sin = tl.cos(angle), tl.sin(angle)
    offset_x, offset_y = -SHEAR_ABOUT * shear_x - right, -SHEAR_ABOUT * shear_y - down
    if TURN_ABOUT != 0.0:
        offset_x += TURN_ABOUT * (1.0 - cos + sin)
        offset_y += TURN_ABOUT * (1.0 - cos - sin)
    return cos, shear_x - sin, offset_x, shear_y + sin, cos, offset_y


@triton.jit
def from_centre(pixel_P, SIZE: tl.constexpr):
    """The pixels' x and y."""
    x_P = (pixel_P % SIZE).to(tl.float32) - 0.5 * (SIZE - 1)
    y_P = (pixel_P // SIZE).to(tl.float32) - 0.5 * (SIZE - 1)
    return x_P, y_P


@triton.jit
def _coordinate(x_P, y_P, along_x, along_y, offset, SIZE: tl.constexpr):
    """Where `sample_affine` reads along one axis: its steps and those of grid_sample, each of which rounds."""
    half: tl.constexpr = 0.5 * SIZE
    along_x, along_y, offset = tl.div_rn(along_x, half), tl.div_rn(along_y, half), tl.div_rn(offset, half)
    grid_P = (x_P * along_x + offset) + y_P * along_y
    return (((grid_P + 1.0) * half - 0.5) + ROUNDER) - ROUNDER


@triton.jit
def nearest_sources(op, magnitude, pixel_P, SIZE: tl.constexpr):
    """Which pixel each one is after a shear, translation or rotation as torchvision has them; -1: none."""
    a, b, c, d, e, f = inverse_matrix(op, magnitude, -0.5 * SIZE, 0.0)
    x_P, y_P = from_centre(pixel_P, SIZE)
    column_P, row_P = _coordinate(x_P, y_P, a, b, c, SIZE), _coordinate(x_P, y_P, d, e, f, SIZE)
    inside_P = (column_P >= 0) & (column_P < SIZE) & (row_P >= 0) & (row_P < SIZE)
    return tl.where(inside_P, row_P * SIZE + column_P, -1.0).to(tl.int32)


@triton.jit
def moved(level_P, source_P):
    return tl.where(source_P >= 0, tl.gather(level_P, tl.maximum(source_P, 0), 0), 0.0)
