"""The AutoAugment policy found on CIFAR-10: 25 sub-policies of two operations each, and torchvision's magnitudes.

The authors of the paper use it on every data set, with magnitudes and geometry of their own (see authors.py).
"""

from enum import IntEnum
from functools import cache

import torch
from torch import Tensor


class Op(IntEnum):
    """Grouped, so that a comparison tells a group: geometry, blends (both signed), then tables."""

    IDENTITY = 0
    SHEAR_X = 1
    SHEAR_Y = 2
    TRANSLATE_X = 3
    TRANSLATE_Y = 4
    ROTATE = 5
    BRIGHTNESS = 6
    CONTRAST = 7
    COLOR = 8
    SHARPNESS = 9
    POSTERIZE = 10
    SOLARIZE = 11
    INVERT = 12
    AUTOCONTRAST = 13
    EQUALIZE = 14


LAST_MOVE, LAST_SIGNED = Op.ROTATE, Op.SHARPNESS

Step = tuple[Op, float, int]
"""An operation, its probability and the bin (0 to 9) of its magnitude; bin 0 where there is none."""

SUB_POLICIES: tuple[tuple[Step, Step], ...] = (
    ((Op.INVERT, 0.1, 0), (Op.CONTRAST, 0.2, 6)),
    ((Op.ROTATE, 0.7, 2), (Op.TRANSLATE_X, 0.3, 9)),
    ((Op.SHARPNESS, 0.8, 1), (Op.SHARPNESS, 0.9, 3)),
    ((Op.SHEAR_Y, 0.5, 8), (Op.TRANSLATE_Y, 0.7, 9)),
    ((Op.AUTOCONTRAST, 0.5, 0), (Op.EQUALIZE, 0.9, 0)),
    ((Op.SHEAR_Y, 0.2, 7), (Op.POSTERIZE, 0.3, 7)),
    ((Op.COLOR, 0.4, 3), (Op.BRIGHTNESS, 0.6, 7)),
    ((Op.SHARPNESS, 0.3, 9), (Op.BRIGHTNESS, 0.7, 9)),
    ((Op.EQUALIZE, 0.6, 0), (Op.EQUALIZE, 0.5, 0)),
    ((Op.CONTRAST, 0.6, 7), (Op.SHARPNESS, 0.6, 5)),
    ((Op.COLOR, 0.7, 7), (Op.TRANSLATE_X, 0.5, 8)),
    ((Op.EQUALIZE, 0.3, 0), (Op.AUTOCONTRAST, 0.4, 0)),
    ((Op.TRANSLATE_Y, 0.4, 3), (Op.SHARPNESS, 0.2, 6)),
    ((Op.BRIGHTNESS, 0.9, 6), (Op.COLOR, 0.2, 8)),
    ((Op.SOLARIZE, 0.5, 2), (Op.INVERT, 0.0, 0)),
    ((Op.EQUALIZE, 0.2, 0), (Op.AUTOCONTRAST, 0.6, 0)),
    ((Op.EQUALIZE, 0.2, 0), (Op.EQUALIZE, 0.6, 0)),
    ((Op.COLOR, 0.9, 9), (Op.EQUALIZE, 0.6, 0)),
    ((Op.AUTOCONTRAST, 0.8, 0), (Op.SOLARIZE, 0.2, 8)),
    ((Op.BRIGHTNESS, 0.1, 3), (Op.COLOR, 0.7, 0)),
    ((Op.SOLARIZE, 0.4, 5), (Op.AUTOCONTRAST, 0.9, 0)),
    ((Op.TRANSLATE_Y, 0.9, 9), (Op.TRANSLATE_Y, 0.7, 9)),
    ((Op.AUTOCONTRAST, 0.9, 0), (Op.SOLARIZE, 0.8, 3)),
    ((Op.EQUALIZE, 0.8, 0), (Op.INVERT, 0.1, 0)),
    ((Op.TRANSLATE_Y, 0.7, 9), (Op.AUTOCONTRAST, 0.9, 0)),
)


def magnitude_of(op: Op, bin_index: int, image_size: int) -> float:
    """A slope, whole pixels, degrees, a blend's excess over 1, a number of bits or a level."""
    largest = {
        Op.SHEAR_X: 0.3,
        Op.SHEAR_Y: 0.3,
        Op.TRANSLATE_X: 150 / 331 * image_size,
        Op.TRANSLATE_Y: 150 / 331 * image_size,
        Op.ROTATE: 30.0,
        Op.BRIGHTNESS: 0.9,
        Op.CONTRAST: 0.9,
        Op.COLOR: 0.9,
        Op.SHARPNESS: 0.9,
    }
    if op == Op.POSTERIZE:
        return 8 - round(bin_index * 4 / 9)
    if op == Op.SOLARIZE:
        return float(torch.linspace(255, 0, 10)[bin_index])
    if op not in largest:
        return 0.0
    magnitude = float(torch.linspace(0, largest[op], 10)[bin_index])
    return float(int(magnitude)) if op in (Op.TRANSLATE_X, Op.TRANSLATE_Y) else magnitude


@cache
@torch.inference_mode(False)
def sub_policy_table(image_size: int, device: torch.device) -> Tensor:
    """(25, 2, 3): operation, probability and magnitude of both steps of each sub-policy."""
    rows = [
        [(op, probability, magnitude_of(op, bin_index, image_size)) for op, probability, bin_index in steps]
        for steps in SUB_POLICIES
    ]
    return torch.tensor(rows, dtype=torch.float32, device=device)
