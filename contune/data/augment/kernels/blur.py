"""The weights of a Gaussian blur that reflects at the border, in Triton; contune.data.augment.blur is the reference.

O, I: pixels of the view along one axis, after and before; T: taps from the centre outwards; padded to powers of two.
"""

import triton
import triton.language as tl

NARROWEST = tl.constexpr(1e-3)


@triton.jit
def _tap(distance, sigma, RADIUS: tl.constexpr):
    scaled = distance / sigma
    return tl.where(distance <= RADIUS, tl.exp(-0.5 * scaled * scaled), 0.0)


@triton.jit
def blur_weights(sigma, SIZE: tl.constexpr, RADIUS: tl.constexpr, PT: tl.constexpr, PS: tl.constexpr):
    """Weights (O, I) of a blur of `sigma` pixels."""
    sigma = tl.maximum(sigma, NARROWEST)
    total = 2.0 * tl.sum(_tap(tl.arange(0, PT), sigma, RADIUS), axis=0) - 1.0
    out_O1, in_1I = tl.arange(0, PS)[:, None], tl.arange(0, PS)[None, :]
    weights_OI = _tap(tl.abs(out_O1 - in_1I), sigma, RADIUS)
    weights_OI += tl.where(in_1I > 0, _tap(out_O1 + in_1I, sigma, RADIUS), 0.0)
    weights_OI += tl.where(in_1I < SIZE - 1, _tap(2 * (SIZE - 1) - out_O1 - in_1I, sigma, RADIUS), 0.0)
    return tl.where((out_O1 < SIZE) & (in_1I < SIZE), weights_OI / total, 0.0)
