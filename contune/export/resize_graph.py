"""The encoder's own resizing in operations that every ONNX runtime has and computes alike.

`F.interpolate(antialias=True)` would become ONNX's Resize. In ONNX Runtime 1.31 that is off by 7e-4 of a gray level for
a photo, enough to round otherwise than PyTorch where a value lies half way between two levels, as it often does when
images are doubled. Here the weights are computed in the steps that PyTorch computes them in.
Shapes: N images, C channels, H, W height and width, S the side they are resized to, I pixels along one axis.
"""

import torch
from torch import Tensor


def squash(x_NCHW: Tensor, size: int) -> Tensor:
    """Levels 0..255 resized to (size, size), bilinear with antialiasing, rounded; the width first, as PyTorch does."""
    x_NCHS = x_NCHW @ axis_weights(x_NCHW.shape[3], size).mT
    return (axis_weights(x_NCHW.shape[2], size) @ x_NCHS).round()


def axis_weights(num_in: int, size: int) -> Tensor:
    """(S, I): how much each pixel along an axis counts for each one of the result. For I = S, the identity."""
    in_I = torch.arange(num_in, dtype=torch.float32)
    scale = torch.full((), num_in, dtype=torch.float32) / size
    centre_S1 = (scale * (torch.arange(size, dtype=torch.float32) + 0.5))[:, None]
    # Shrinking widens the triangle (antialiasing); enlarging leaves it as it is.
    distance_SI = (in_I - centre_S1 + 0.5) * (1 / scale.clamp(min=1))
    weights_SI = (1 - distance_SI.abs()).clamp(min=0)
    return weights_SI / weights_SI.sum(dim=1, keepdim=True)
