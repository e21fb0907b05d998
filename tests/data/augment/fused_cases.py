"""What the tests of fused views share: images, and both ways to the views of the same parameters.

Without a GPU the kernels run through Triton's interpreter, some milliseconds a view.
"""

import torch
from torch import Tensor

from contune.data.augment import Params, Policy, fused, normalise

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
MEAN, STD = (0.49, 0.48, 0.44), (0.2, 0.19, 0.21)


def blobs(num: int, channels: int, size: int, seed: int = 7) -> Tensor:
    """Smooth colour blobs with a little noise, every fourth one of few levels."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand(num, channels, 4, 4, generator=generator) * 300 - 20
    smooth = torch.nn.functional.interpolate(coarse, size=(size, size), mode="bicubic")
    images = (smooth + 6 * torch.randn(smooth.shape, generator=generator)).clamp(0, 255)
    images[3::4] = images[3::4].div(90).floor().mul(50)
    return images.to(torch.uint8)


def fused_views(policy: Policy, images: Tensor, params: Params, dtype: torch.dtype = torch.float32) -> Tensor:
    """By the kernel on the device, back on the CPU."""
    channels = images.shape[1]
    on_device = {name: value.to(DEVICE) for name, value in params.items()}
    views = fused.fused_views(policy, images.to(DEVICE), on_device, MEAN[:channels], STD[:channels], dtype)
    return views.cpu()


def torch_views(policy: Policy, images: Tensor, params: Params, dtype: torch.dtype = torch.float32) -> Tensor:
    """By the policy itself on the CPU."""
    channels = images.shape[1]
    num_views = len(next(iter(params.values()))) // len(images)
    views = policy.apply(images.repeat(num_views, 1, 1, 1), params)
    return normalise(views, MEAN[:channels], STD[:channels]).to(dtype)


def shares_that_differ(policy: Policy, images: Tensor, params: Params) -> Tensor:
    """For each view, the share of its numbers that are not equal to the last bit."""
    return (fused_views(policy, images, params) != torch_views(policy, images, params)).flatten(1).float().mean(1)


def assert_rounded(ours: Tensor, exact: Tensor) -> None:
    """To the nearest number of the narrower type; Triton's interpreter cuts off bfloat16 instead."""
    if DEVICE.type == "cuda":
        assert torch.equal(ours, exact.to(ours.dtype))
    else:
        torch.testing.assert_close(ours.float(), exact, rtol=2.0**-7, atol=0)
