"""Colour changes of the planes r, g, b of one view in [0, 1], in Triton; contune.data.augment.color is the reference.

One program changes one view, so which step comes next is a branch that all its threads take together. A view of one
channel has its plane in all three.
"""

import triton
import triton.language as tl

from contune.data.augment import color

LUMA_R, LUMA_G, LUMA_B = (tl.constexpr(weight) for weight in color.LUMA)
CONTRAST, SATURATION, HUE = tl.constexpr(color.CONTRAST), tl.constexpr(color.SATURATION), tl.constexpr(color.HUE)
NUM_JITTERS = tl.constexpr(color.NUM_JITTERS)


@triton.jit
def clamped(x):
    return tl.minimum(tl.maximum(x, 0.0), 1.0)


@triton.jit
def luma(r, g, b, C: tl.constexpr):
    if C == 1:
        return r
    return LUMA_R * r + LUMA_G * g + LUMA_B * b


@triton.jit
def _below_value(sixths):
    """How far a channel lies below the value, in chromas, with the hue so many sixths of the circle past its offset."""
    k = sixths - 6.0 * tl.floor(sixths / 6.0)
    return clamped(tl.minimum(k, 4.0 - k))


@triton.jit
def hue_shifted(r, g, b, turn):
    value = tl.maximum(r, tl.maximum(g, b))
    chroma = value - tl.minimum(r, tl.minimum(g, b))
    divisor = tl.maximum(chroma, 1e-12)
    # Channels that are equally bright give the same hue, so any of them will do.
    hue = tl.where(
        value == r, (g - b) / divisor, tl.where(value == g, (b - r) / divisor + 2.0, (r - g) / divisor + 4.0)
    )
    hue += 6.0 * turn
    return (
        value - chroma * _below_value(hue + 5.0),
        value - chroma * _below_value(hue + 3.0),
        value - chroma * _below_value(hue + 1.0),
    )


@triton.jit
def jittered(r, g, b, inside, factor_ptr, turn_ptr, order_ptr, view, NUM_PIXELS: tl.constexpr, C: tl.constexpr):
    """Brightness, contrast, saturation and hue in the view's order; `inside` is false on padding.

    The first three blend with black, the mean gray and the gray image. Steps that would keep everything are skipped.
    """
    for step in range(NUM_JITTERS):
        operation = tl.load(order_ptr + NUM_JITTERS * view + step)
        if operation == HUE:
            if C == 3:
                turn = tl.load(turn_ptr + view)
                if turn != 0.0:
                    r, g, b = hue_shifted(r, g, b, turn)
        else:
            factor = tl.load(factor_ptr + 3 * view + operation)
            if factor != 1.0:
                gray = luma(r, g, b, C)
                other = tl.where(operation == SATURATION, 1.0 - factor, 0.0) * gray
                if operation == CONTRAST:
                    other += (1.0 - factor) * tl.sum(tl.where(inside, gray, 0.0)) / NUM_PIXELS
                r, g, b = clamped(factor * r + other), clamped(factor * g + other), clamped(factor * b + other)
    return r, g, b
