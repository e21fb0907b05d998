"""What the tests of fused views share: images, and both ways to the views of the same parameters.

Without a GPU the kernels run through Triton's interpreter, some milliseconds a view.
"""

import torch
from torch import Tensor

from contune.data.augment import Params, Policy, fused, normalise
from contune.data.augment.subpolicies import Op

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
MEAN, STD = (0.49, 0.48, 0.44), (0.2, 0.19, 0.21)
MOVES = (Op.SHEAR_X, Op.SHEAR_Y, Op.TRANSLATE_X, Op.TRANSLATE_Y, Op.ROTATE)
MAGNITUDES = {
    Op.SHEAR_X: [-0.3, -0.11, 0.07, 0.29],
    Op.SHEAR_Y: [-0.3, -0.11, 0.07, 0.29],
    Op.TRANSLATE_X: [-9.0, -1.0, 2.0, 5.0],
    Op.TRANSLATE_Y: [-9.0, -1.0, 2.0, 5.0],
    Op.ROTATE: [-27.0, -6.7, 3.3, 29.0],
    Op.POSTERIZE: [4.0, 5.0, 7.0, 8.0],
    Op.SOLARIZE: [0.0, 28.3, 128.0, 255.0],
}
Steps = tuple[Op, float, Op, float]
"""Operation and magnitude of a view's first step and of its second."""


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


def magnitude(op: Op, number: int, part: float) -> float:
    shift = part if op in (Op.TRANSLATE_X, Op.TRANSLATE_Y) else 0.0
    return MAGNITUDES.get(op, [-0.9, -0.35, 0.2, 0.9])[number % 4] + shift


def every_operation(part: float = 0.0) -> list[Steps]:
    """With four magnitudes each; `part`: of a pixel, added to translations."""
    return [(op, magnitude(op, number, part), Op.IDENTITY, 0.0) for number in range(4) for op in Op]


def every_pair_of_operations(part: float = 0.0) -> list[Steps]:
    pairs = [(first, second) for first in Op for second in Op]
    return [(one, magnitude(one, one + two, part), two, magnitude(two, one, part)) for one, two in pairs]


def with_steps(policy: Policy, steps: list[Steps]) -> Params:
    """Drawn crops and flips, then the operations and magnitudes asked for."""
    params = policy.draw(len(steps), torch.Generator().manual_seed(0))
    table_B4 = torch.tensor([[float(number) for number in step] for step in steps])
    return params | {"op": table_B4[:, 0::2].long(), "magnitude": table_B4[:, 1::2].contiguous()}
