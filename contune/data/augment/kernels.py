"""Triton kernels of the augmentation: one launch makes all views of a policy, from uint8 images to normalized pixels.

One program makes one view. Its whole program knows which operations the view has, so each is a branch and only what
was drawn is computed. Images are read where they are and never repeated: view n shows image n mod B. Nothing waits for
the device, so a CUDA graph can capture a launch. The references are the `apply` of CropFlip,
AutoAugment and SimAugment; the operations are described there.

Triton needs powers of two, so tiles are padded beyond the end of the image. A gray image is held as three equal planes
r, g, b.

B: images, N: views, C: channels, H, W: height, width of an image, S: side of a view, P: pixels of a view, L: the 256
levels, O, I: pixels of a view and of its image along one axis, T: taps of the blur, A: attempts at a crop.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from contune.data.augment import ops, simaugment
from contune.data.augment.autoaugment import AutoAugment, CropFlip, Op
from contune.data.augment.ops import Params, Policy, constant
from contune.data.augment.simaugment import SimAugment
from contune.device import interprets_triton
from contune.kernels.fused import padded

LUMA_R, LUMA_G, LUMA_B = (tl.constexpr(weight) for weight in ops.LUMA)


# ---------------------------------------------------------------------------- AutoAugment, crop and flip
# Levels are whole numbers in float32, truncated where torchvision truncates. No product and sum are contracted and
# divisions round correctly, so colors, shears and translations equal the torch policy's to the bit. A rotation's sine
# may differ in its last bit, which moves a pixel only where its coordinate is a tie except for that bit. No angle of
# the policy has such ties on images of up to 64 pixels.

(
    IDENTITY, SHEAR_X, SHEAR_Y, TRANSLATE_X, TRANSLATE_Y, ROTATE, BRIGHTNESS, CONTRAST, COLOR, SHARPNESS, POSTERIZE,
    SOLARIZE, INVERT, AUTOCONTRAST, EQUALIZE,
) = (tl.constexpr(op.value) for op in Op)  # fmt: skip
RADIANS = tl.constexpr(0.017453292519943295)


@triton.jit
def _rounded(x):
    """To the nearest whole number, halves to even: 1.5 · 2^23 leaves a float32 no bits for a fraction."""
    return (x + 12582912.0) - 12582912.0


@triton.jit
def _luma(r, g, b, C: tl.constexpr):
    if C == 1:
        return r
    return LUMA_R * r + LUMA_G * g + LUMA_B * b


@triton.jit
def _coordinate(x_P, y_P, along_x, along_y, offset, SIZE: tl.constexpr):
    """Where `sample_affine` reads along one axis: its steps and those of grid_sample, each of which rounds."""
    half: tl.constexpr = 0.5 * SIZE
    along_x, along_y, offset = tl.div_rn(along_x, half), tl.div_rn(along_y, half), tl.div_rn(offset, half)
    grid_P = (x_P * along_x + offset) + y_P * along_y
    return _rounded((grid_P + 1.0) * half - 0.5)


@triton.jit
def _sources(op, magnitude, pixel_P, SIZE: tl.constexpr):
    """The pixel that each one shows after a shear, translation or rotation; -1: none. See `autoaugment.move`."""
    shear_x, shear_y = tl.where(op == SHEAR_X, magnitude, 0.0), tl.where(op == SHEAR_Y, magnitude, 0.0)
    right, down = tl.where(op == TRANSLATE_X, magnitude, 0.0), tl.where(op == TRANSLATE_Y, magnitude, 0.0)
    angle = tl.where(op == ROTATE, magnitude, 0.0) * RADIANS
    cos, sin = tl.cos(angle), tl.sin(angle)
    x_P = (pixel_P % SIZE).to(tl.float32) - 0.5 * (SIZE - 1)
    y_P = (pixel_P // SIZE).to(tl.float32) - 0.5 * (SIZE - 1)
    column_P = _coordinate(x_P, y_P, cos, shear_x - sin, 0.5 * SIZE * shear_x - right, SIZE)
    row_P = _coordinate(x_P, y_P, shear_y + sin, cos, 0.5 * SIZE * shear_y - down, SIZE)
    inside_P = (column_P >= 0) & (column_P < SIZE) & (row_P >= 0) & (row_P < SIZE)
    return tl.where(inside_P, row_P * SIZE + column_P, -1.0).to(tl.int32)


@triton.jit
def _moved(level_P, source_P):
    return tl.where(source_P >= 0, tl.gather(level_P, tl.maximum(source_P, 0), 0), 0.0)


@triton.jit
def _truncated(value_P):
    return tl.floor(tl.minimum(tl.maximum(value_P, 0.0), 255.0))


@triton.jit
def _blended(level_P, other_P, magnitude):
    return _truncated((1.0 + magnitude) * level_P - magnitude * other_P)


@triton.jit
def _smoothed(level_P, pixel_P, SIZE: tl.constexpr, BP: tl.constexpr):
    before_P, after_P = tl.maximum(pixel_P - 1, 0), tl.minimum(pixel_P + 1, BP - 1)
    above_P, below_P = tl.maximum(pixel_P - SIZE, 0), tl.minimum(pixel_P + SIZE, BP - 1)
    three_P = level_P + tl.gather(level_P, before_P, 0) + tl.gather(level_P, after_P, 0)
    nine_P = three_P + tl.gather(three_P, above_P, 0) + tl.gather(three_P, below_P, 0)
    mean_P = _rounded(tl.div_rn(nine_P + 4.0 * level_P, 13.0))
    x_P, y_P = pixel_P % SIZE, pixel_P // SIZE
    inner_P = (x_P > 0) & (x_P < SIZE - 1) & (y_P > 0) & (y_P < SIZE - 1)
    return tl.where(inner_P, mean_P, level_P)


@triton.jit
def _posterized(level_P, bits):
    dropped = 8 - bits.to(tl.int32)
    return ((level_P.to(tl.int32) >> dropped) << dropped).to(tl.float32)


@triton.jit
def _solarized(level_P, threshold):
    return tl.where(level_P >= threshold, 255.0 - level_P, level_P)


@triton.jit
def _autocontrasted(level_P, inside_P):
    low = tl.min(tl.where(inside_P, level_P, 255.0), axis=0)
    high = tl.max(tl.where(inside_P, level_P, 0.0), axis=0)
    # torch divides a number by a tensor as the number times the reciprocal.
    scale = tl.div_rn(1.0, tl.maximum(high - low, 1.0)) * 255.0
    return tl.where(low == high, level_P, _truncated((level_P - low) * scale))


@triton.jit
def _equalized(level_P, inside_P):
    index_P = level_P.to(tl.int32)
    counts_L = tl.histogram(index_P, 256, mask=inside_P)
    below_L = tl.cumsum(counts_L, axis=0) - counts_L
    brightest = tl.max(tl.where(inside_P, index_P, 0), axis=0)
    step = tl.sum((inside_P & (index_P < brightest)).to(tl.int32), axis=0) // 255
    table_L = tl.minimum((below_L + step // 2) // tl.maximum(step, 1), 255)
    return tl.where(step == 0, level_P, tl.gather(table_L, index_P, 0).to(tl.float32))


@triton.jit
def _step(r_P, g_P, b_P, op, m, pixel_P, inside_P, SIZE: tl.constexpr, C: tl.constexpr, BP: tl.constexpr):
    """One operation of AutoAugment with the magnitude m."""
    if (op >= SHEAR_X) & (op <= ROTATE):
        source_P = _sources(op, m, pixel_P, SIZE)
        r_P, g_P, b_P = _moved(r_P, source_P), _moved(g_P, source_P), _moved(b_P, source_P)
    elif op == BRIGHTNESS:
        r_P, g_P, b_P = _blended(r_P, 0.0, m), _blended(g_P, 0.0, m), _blended(b_P, 0.0, m)
    elif (op == CONTRAST) | ((op == COLOR) & (C == 3)):  # torchvision's saturation keeps a gray image
        gray_P = _luma(r_P, g_P, b_P, C)
        gray_P = tl.floor(gray_P)
        if op == CONTRAST:
            # Exact up to the division: sums of levels are whole numbers that float32 holds.
            gray_P = tl.zeros_like(gray_P) + tl.div_rn(
                tl.sum(tl.where(inside_P, gray_P, 0.0), axis=0), 1.0 * SIZE * SIZE
            )
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
    return r_P, g_P, b_P


@triton.jit
def _store(out_ptr, value, at, inside, mean_std_ptr, c: tl.constexpr, C: tl.constexpr):
    """One channel in [0, 1], normalized. Divides as torch does, so that equal pixels are equal to the last bit."""
    normal = tl.div_rn(value - tl.load(mean_std_ptr + c), tl.load(mean_std_ptr + C + c))
    tl.store(out_ptr + at + c, normal.to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def autoaugment_kernel(
    images_ptr, start_ptr, flip_ptr, op_ptr, magnitude_ptr, mean_std_ptr, out_ptr, num_images, padding,
    stride_image, stride_channel, stride_row, stride_column,
    SIZE: tl.constexpr, C: tl.constexpr, BP: tl.constexpr, STEPS: tl.constexpr,
):  # fmt: skip
    """A window of the padded image, mirrored or not, then STEPS operations."""
    view = tl.program_id(0)
    pixel_P = tl.arange(0, BP)
    inside_P = pixel_P < SIZE * SIZE
    row_P = (pixel_P // SIZE + tl.load(start_ptr + 2 * view) - padding).to(tl.int32)
    column_P = pixel_P % SIZE
    column_P = tl.where(tl.load(flip_ptr + view), SIZE - 1 - column_P, column_P)
    column_P = (column_P + tl.load(start_ptr + 2 * view + 1) - padding).to(tl.int32)
    loaded_P = inside_P & (row_P >= 0) & (row_P < SIZE) & (column_P >= 0) & (column_P < SIZE)
    at_P = images_ptr + (view % num_images).to(tl.int64) * stride_image + row_P * stride_row + column_P * stride_column
    r_P = tl.load(at_P, mask=loaded_P, other=0).to(tl.float32)
    g_P, b_P = r_P, r_P
    if C == 3:
        g_P = tl.load(at_P + stride_channel, mask=loaded_P, other=0).to(tl.float32)
        b_P = tl.load(at_P + 2 * stride_channel, mask=loaded_P, other=0).to(tl.float32)
    if STEPS > 0:
        for step in range(STEPS):
            op, m = tl.load(op_ptr + STEPS * view + step), tl.load(magnitude_ptr + STEPS * view + step)
            r_P, g_P, b_P = _step(r_P, g_P, b_P, op, m, pixel_P, inside_P, SIZE, C, BP)
    view_ptr = out_ptr + view.to(tl.int64) * (SIZE * SIZE * C)
    _store(view_ptr, tl.div_rn(r_P, 255.0), pixel_P * C, inside_P, mean_std_ptr, 0, C)
    if C == 3:
        _store(view_ptr, tl.div_rn(g_P, 255.0), pixel_P * C, inside_P, mean_std_ptr, 1, C)
        _store(view_ptr, tl.div_rn(b_P, 255.0), pixel_P * C, inside_P, mean_std_ptr, 2, C)


# ---------------------------------------------------------------------------- SimAugment
# Within 5e-5 of `SimAugment.apply` in [0, 1]. A program reads its image once and writes its view once.

JITTER_CONTRAST, JITTER_SATURATION = tl.constexpr(simaugment.CONTRAST), tl.constexpr(simaugment.SATURATION)
JITTER_HUE, NUM_JITTERS = tl.constexpr(simaugment.HUE), tl.constexpr(simaugment.NUM_JITTERS)
NARROWEST_BLUR = tl.constexpr(simaugment.NARROWEST_BLUR)


@triton.jit
def _crop_box(
    area_ptr, aspect_ptr, position_ptr, view,
    H: tl.constexpr, W: tl.constexpr, CENTER_H: tl.constexpr, CENTER_W: tl.constexpr,
    ATTEMPTS: tl.constexpr, PA: tl.constexpr,
):  # fmt: skip
    """Top, left, height and width of the first attempt that fits, or of the center box when none does.

    Divisions and roots round correctly: a side that is off by one would be another view.
    """
    attempt_A = tl.arange(0, PA)
    drawn_A = attempt_A < ATTEMPTS
    area_A = tl.load(area_ptr + view * ATTEMPTS + attempt_A, mask=drawn_A, other=0.0) * (H * W)
    aspect_A = tl.load(aspect_ptr + view * ATTEMPTS + attempt_A, mask=drawn_A, other=1.0)
    height_A = _rounded(tl.sqrt_rn(tl.div_rn(area_A, aspect_A)))
    width_A = _rounded(tl.sqrt_rn(area_A * aspect_A))
    fits_A = (height_A > 0) & (height_A <= H) & (width_A > 0) & (width_A <= W)
    first = tl.min(tl.where(fits_A, attempt_A, PA), axis=0)
    some = first < PA
    height = tl.where(some, tl.sum(tl.where(attempt_A == first, height_A, 0.0), axis=0), CENTER_H)
    width = tl.where(some, tl.sum(tl.where(attempt_A == first, width_A, 0.0), axis=0), CENTER_W)
    down, right = tl.load(position_ptr + 2 * view), tl.load(position_ptr + 2 * view + 1)
    top = tl.floor(tl.where(some, down * (H - height + 1), 0.5 * (H - height)))
    left = tl.floor(tl.where(some, right * (W - width + 1), 0.5 * (W - width)))
    return top, left, height, width


@triton.jit
def _box_weights(start, size, mirrored, NUM_OUT: tl.constexpr, PI: tl.constexpr, PO: tl.constexpr, CUBIC: tl.constexpr):
    """Weights (O, I) that resample the pixels start..start+size-1 of one axis to NUM_OUT pixels."""
    in_I, out_O = tl.arange(0, PI), tl.arange(0, PO)
    step = size / NUM_OUT
    center_O = start + step * (tl.where(mirrored, NUM_OUT - 1 - out_O, out_O) + 0.5)
    distance_OI = tl.abs((in_I + 0.5)[None, :] - center_O[:, None]) / tl.maximum(step, 1.0)
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
def _tap(distance, sigma, RADIUS: tl.constexpr):
    scaled = distance / sigma
    return tl.where(distance <= RADIUS, tl.exp(-0.5 * scaled * scaled), 0.0)


@triton.jit
def _blur_weights(sigma, SIZE: tl.constexpr, RADIUS: tl.constexpr, PT: tl.constexpr, PS: tl.constexpr):
    """Weights (O, I) of a blur of `sigma` pixels that reflects at the border."""
    sigma = tl.maximum(sigma, NARROWEST_BLUR)
    total = 2.0 * tl.sum(_tap(tl.arange(0, PT), sigma, RADIUS), axis=0) - 1.0
    out_O1, in_1I = tl.arange(0, PS)[:, None], tl.arange(0, PS)[None, :]
    weights_OI = _tap(tl.abs(out_O1 - in_1I), sigma, RADIUS)
    weights_OI += tl.where(in_1I > 0, _tap(out_O1 + in_1I, sigma, RADIUS), 0.0)
    weights_OI += tl.where(in_1I < SIZE - 1, _tap(2 * (SIZE - 1) - out_O1 - in_1I, sigma, RADIUS), 0.0)
    return tl.where((out_O1 < SIZE) & (in_1I < SIZE), weights_OI / total, 0.0)


@triton.jit
def _product(x, y):
    """x · y of float32 on tensor cores, to about 22 bits: each factor is the sum of two float16.

    Levels and weights are far from float16's limits. Three TF32 products would be as exact, for twice the registers.
    """
    x_high, y_high = x.to(tl.float16), y.to(tl.float16)
    x_low, y_low = (x - x_high.to(tl.float32)).to(tl.float16), (y - y_high.to(tl.float32)).to(tl.float16)
    return tl.dot(x_high, y_high, tl.dot(x_high, y_low, tl.dot(x_low, y_high)))


@triton.jit
def _mixed(rows_OH, plane_HW, columns_OW):
    """One channel's rows and columns mixed by weights: rows · plane · columnsᵀ."""
    return _product(rows_OH, _product(plane_HW, tl.trans(columns_OW)))


@triton.jit
def _clamped(x):
    return tl.minimum(tl.maximum(x, 0.0), 1.0)


@triton.jit
def _below_value(sixths):
    """How far a channel lies below the value, in chromas, where the hue is `sixths` of the circle past its offset."""
    k = sixths - 6.0 * tl.floor(sixths / 6.0)
    return _clamped(tl.minimum(k, 4.0 - k))


@triton.jit
def _hue_shifted(r, g, b, turn):
    value = tl.maximum(r, tl.maximum(g, b))
    chroma = value - tl.minimum(r, tl.minimum(g, b))
    divisor = tl.maximum(chroma, 1e-12)
    # Channels that are equally bright give the same hue, so the choice among them does not matter.
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
def _jittered(r, g, b, inside, factor_ptr, turn_ptr, order_ptr, view, NUM_PIXELS: tl.constexpr, C: tl.constexpr):
    """Brightness, contrast, saturation and hue in the view's order; steps that change nothing are skipped."""
    for step in range(NUM_JITTERS):
        operation = tl.load(order_ptr + NUM_JITTERS * view + step)
        if operation == JITTER_HUE:
            if C == 3:
                turn = tl.load(turn_ptr + view)
                if turn != 0.0:
                    r, g, b = _hue_shifted(r, g, b, turn)
        else:
            factor = tl.load(factor_ptr + 3 * view + operation)
            if factor != 1.0:
                gray = _luma(r, g, b, C)
                other = tl.where(operation == JITTER_SATURATION, 1.0 - factor, 0.0) * gray
                if operation == JITTER_CONTRAST:
                    other += (1.0 - factor) * tl.sum(tl.where(inside, gray, 0.0)) / NUM_PIXELS
                r, g, b = _clamped(factor * r + other), _clamped(factor * g + other), _clamped(factor * b + other)
    return r, g, b


@triton.jit
def _cropped(plane_ptr, rows_SH, columns_SW, H: tl.constexpr, W: tl.constexpr, PH: tl.constexpr, PW: tl.constexpr):
    """One channel's box at the view's size, in [0, 1]; bicubic overshoots at edges."""
    y_H1, x_1W = tl.arange(0, PH)[:, None], tl.arange(0, PW)[None, :]
    levels_HW = tl.load(plane_ptr + y_H1 * W + x_1W, mask=(y_H1 < H) & (x_1W < W), other=0).to(tl.float32)
    return _clamped(_mixed(rows_SH, levels_HW, columns_SW) / 255)


@triton.jit
def simaugment_kernel(
    image_ptr, area_ptr, aspect_ptr, position_ptr, flip_ptr, factor_ptr, turn_ptr, order_ptr,
    gray_ptr, sigma_ptr, solarize_ptr, mean_std_ptr, out_ptr, num_images,
    C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, S: tl.constexpr,
    PH: tl.constexpr, PW: tl.constexpr, PS: tl.constexpr,
    CENTER_H: tl.constexpr, CENTER_W: tl.constexpr, ATTEMPTS: tl.constexpr, PA: tl.constexpr,
    CUBIC: tl.constexpr, JITTERS: tl.constexpr, GRAYS: tl.constexpr, SOLARIZES: tl.constexpr,
    BLURS: tl.constexpr, RADIUS: tl.constexpr, PT: tl.constexpr,
):  # fmt: skip
    """A step that the policy never takes is not compiled, one that this view does not take is not computed."""
    view = tl.program_id(0).to(tl.int64)
    image = image_ptr + (view % num_images) * (C * H * W)
    y_S1, x_1S = tl.arange(0, PS)[:, None], tl.arange(0, PS)[None, :]
    inside_SS = (y_S1 < S) & (x_1S < S)

    top, left, height, width = _crop_box(
        area_ptr, aspect_ptr, position_ptr, view, H, W, CENTER_H, CENTER_W, ATTEMPTS, PA
    )
    rows_SH = _box_weights(top, height, False, S, PH, PS, CUBIC)
    columns_SW = _box_weights(left, width, tl.load(flip_ptr + view), S, PW, PS, CUBIC)
    r = _cropped(image, rows_SH, columns_SW, H, W, PH, PW)
    g, b = r, r
    if C == 3:
        g = _cropped(image + H * W, rows_SH, columns_SW, H, W, PH, PW)
        b = _cropped(image + 2 * H * W, rows_SH, columns_SW, H, W, PH, PW)

    if JITTERS:
        r, g, b = _jittered(r, g, b, inside_SS, factor_ptr, turn_ptr, order_ptr, view, S * S, C)
    if GRAYS:
        grayed = tl.load(gray_ptr + view)
        if grayed:
            r = _luma(r, g, b, C)
            g, b = r, r
    if BLURS:
        sigma = tl.load(sigma_ptr + view)
        if sigma > 0.0:
            weights_SS = _blur_weights(sigma, S, RADIUS, PT, PS)
            r = _mixed(weights_SS, r, weights_SS)
            g = _mixed(weights_SS, g, weights_SS)
            b = _mixed(weights_SS, b, weights_SS)
    if SOLARIZES:
        solarized = tl.load(solarize_ptr + view)
        if solarized:
            r = tl.where(r >= 0.5, 1.0 - r, r)
            g = tl.where(g >= 0.5, 1.0 - g, g)
            b = tl.where(b >= 0.5, 1.0 - b, b)

    at_SS = view * (S * S * C) + (y_S1 * S + x_1S) * C
    _store(out_ptr, r, at_SS, inside_SS, mean_std_ptr, 0, C)
    if C == 3:
        _store(out_ptr, g, at_SS, inside_SS, mean_std_ptr, 1, C)
        _store(out_ptr, b, at_SS, inside_SS, mean_std_ptr, 2, C)


def fits(policy: Policy, images_BCHW: Tensor) -> bool:
    """Whether there is a kernel for this very class, and a program can hold the view (and the image, if it crops)."""
    if images_BCHW.shape[1] not in (1, 3) or (images_BCHW.device.type != "cuda" and not interprets_triton()):
        return False
    size, sides = policy.image_size, images_BCHW.shape[-2:]
    if type(policy) is SimAugment:
        return max(sides) <= 128 and size <= 64
    return type(policy) in (CropFlip, AutoAugment) and sides == (size, size) and size <= 128


def fused_views(
    policy: Policy,
    images_BCHW: Tensor,
    params: Params,
    mean: tuple[float, ...],
    std: tuple[float, ...],
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Normalized views (N, C, S, S), channels_last, of a policy that `fits`; view n shows image n mod B."""
    (B, C, H, W), S, device = images_BCHW.shape, policy.image_size, images_BCHW.device
    drawn = {name: value.contiguous() for name, value in params.items()}
    num_views = len(drawn["flip"])
    out_NCSS = torch.empty((num_views, C, S, S), dtype=dtype, device=device, memory_format=torch.channels_last)
    mean_std = constant((*mean, *std), device)
    with torch.cuda.device_of(out_NCSS):  # Triton launches on the current device, which may be another
        if isinstance(policy, CropFlip):
            block = max(128, triton.next_power_of_2(S * S))
            autoaugment_kernel[(num_views,)](
                images_BCHW, drawn["crop_start"], drawn["flip"], drawn.get("op"), drawn.get("magnitude"),
                mean_std, out_NCSS, B, policy.padding, *images_BCHW.stride(),
                SIZE=S, C=C, BP=block, STEPS=drawn["op"].shape[1] if "op" in drawn else 0,
                # 8 pixels per thread, and for small images one per thread.
                num_warps=min(32, max(4, block // 256)), num_stages=1, enable_fp_fusion=False,
            )  # fmt: skip
        elif isinstance(policy, SimAugment):
            attempts, radius = drawn["crop_area"].shape[1], simaugment.blur_radius(policy.blur_sigma[1], S)
            center_height, center_width = simaugment.largest_center_box(H, W, policy.crop_ratio)
            simaugment_kernel[(num_views,)](
                images_BCHW.contiguous(),
                drawn["crop_area"], drawn["crop_aspect"], drawn["crop_position"], drawn["flip"],
                drawn["jitter_factors"], drawn["jitter_turn"], drawn["jitter_order"],
                drawn["gray"], drawn["blur_sigma"], drawn["solarize"], mean_std, out_NCSS, B,
                C=C, H=H, W=W, S=S, PH=padded(H), PW=padded(W), PS=padded(S),
                CENTER_H=center_height, CENTER_W=center_width, ATTEMPTS=attempts, PA=padded(attempts),
                CUBIC=policy.interpolation == "bicubic", JITTERS=policy.jitter_probability > 0, GRAYS=policy.gray > 0,
                SOLARIZES=policy.solarize > 0, BLURS=policy.blur > 0, RADIUS=radius, PT=padded(radius + 1),
                # Four warps spill registers at the larger sizes; eight have too little to do at the smaller ones.
                num_warps=4 if S <= 32 and max(H, W) <= 64 else 8, enable_fp_fusion=True,
            )  # fmt: skip
    return out_NCSS
