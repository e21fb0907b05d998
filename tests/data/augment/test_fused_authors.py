"""The kernel of the authors' AutoAugment against the torch policy with the same parameters.

Colours are equal. A spline is a sum of sixteen terms, in another order than the policy's: now and then it is rounded
to the level above or below, which a second step may make more of.
"""

import pytest
import torch
from fused_cases import (
    DEVICE,
    MEAN,
    MOVES,
    STD,
    Steps,
    assert_rounded,
    blobs,
    every_operation,
    every_pair_of_operations,
    fused_views,
    torch_views,
    with_steps,
)
from torch import Tensor

from contune.data.augment import Params
from contune.data.augment.authors import AuthorsAutoAugment
from contune.data.augment.kernels import autoaugment
from contune.data.augment.subpolicies import Op

OFF = 2e-4
"""The share of moved levels that may be off, by one. About one tenth of it is."""
OFF_AFTER_TWO = 5 * OFF
"""A level that is off may be the brightest, by which autocontrast stretches all others."""


def levels_off(policy: AuthorsAutoAugment, images: Tensor, params: Params) -> Tensor:
    """By how many of the 255 levels each number of a view differs from the policy's, exactly 0 where it is equal."""
    std_C11 = torch.tensor(STD[: policy.channels])[:, None, None]
    return (fused_views(policy, images, params) - torch_views(policy, images, params)).abs() * std_C11 * 255


def share_off(off: Tensor) -> float:
    return (off > 0.5).float().mean().item()


def is_moved(params: Params) -> Tensor:
    return torch.isin(params["op"], torch.tensor(MOVES)).any(1)


@pytest.mark.parametrize(("channels", "size"), [(3, 32), (1, 28), (3, 33), (1, 33), (3, 8), (1, 8), (3, 3)])
def test_every_operation(channels: int, size: int) -> None:
    policy = AuthorsAutoAugment(image_size=size, channels=channels)
    steps = every_operation(0.37)
    params = with_steps(policy, steps)
    off = levels_off(policy, blobs(len(steps), channels, size), params)
    moved = is_moved(params)
    assert off[~moved].max() == 0
    assert off[moved].max() < 1.01
    assert share_off(off[moved]) <= OFF


@pytest.mark.parametrize("op", [Op.TRANSLATE_X, Op.TRANSLATE_Y])
def test_a_translation_by_whole_pixels_is_exact(op: Op) -> None:
    policy = AuthorsAutoAugment(image_size=20, channels=3)
    steps: list[Steps] = [(op, pixels, Op.IDENTITY, 0.0) for pixels in (-19.0, -3.0, 0.0, 1.0, 25.0)]
    assert levels_off(policy, blobs(len(steps), 3, 20), with_steps(policy, steps)).max() == 0


@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_pairs_of_operations(every: int) -> None:
    policy = AuthorsAutoAugment(image_size=12, channels=3, padding=1)
    steps = every_pair_of_operations(0.37)[::every]
    params = with_steps(policy, steps)
    off = levels_off(policy, blobs(len(steps), 3, 12), params)
    moved = is_moved(params)
    assert off[~moved].max() == 0
    assert share_off(off[moved]) <= OFF_AFTER_TWO


def test_drawn_parameters_of_three_views() -> None:
    policy = AuthorsAutoAugment(image_size=32, channels=3)
    params, images = policy.draw(3 * 20, torch.Generator().manual_seed(1)), blobs(20, 3, 32)
    assert 0.1 < is_moved(params).float().mean() < 0.5
    ours = fused_views(policy, images, params)
    assert ours.is_contiguous(memory_format=torch.channels_last)
    assert share_off(levels_off(policy, images, params)) <= OFF
    half = fused_views(policy, images, params, torch.bfloat16)
    assert half.is_contiguous(memory_format=torch.channels_last)
    assert_rounded(half, ours)


def test_images_of_another_layout_are_read_where_they_lie() -> None:
    policy = AuthorsAutoAugment(image_size=16, channels=3)
    params, images = policy.draw(8, torch.Generator().manual_seed(2)), blobs(16, 3, 20)
    window = images.contiguous(memory_format=torch.channels_last)[::4, :, 2:18, 3:19]
    assert torch.equal(fused_views(policy, window, params), fused_views(policy, window.contiguous(), params))


@pytest.mark.parametrize(("channels", "size"), [(3, 9), (1, 33)])
def test_every_number_is_written_and_none_beyond(channels: int, size: int) -> None:
    policy = AuthorsAutoAugment(image_size=size, channels=channels)
    steps: list[Steps] = [(op, 6.3, Op.ROTATE, 11.0) for op in (Op.ROTATE, Op.TRANSLATE_X, Op.TRANSLATE_Y, Op.INVERT)]
    params = {name: value.to(DEVICE) for name, value in with_steps(policy, steps).items()}
    poisoned = torch.full((6, channels, size, size), float("nan"), device=DEVICE)
    poisoned = poisoned.contiguous(memory_format=torch.channels_last)
    images = blobs(2, channels, size).to(DEVICE)
    autoaugment.launch(policy, images, params, MEAN[:channels], STD[:channels], poisoned[1:5])
    assert poisoned[1:5].isfinite().all()
    assert poisoned[0].isnan().all()
    assert poisoned[5].isnan().all()


@pytest.mark.parametrize(("size", "fits"), [(3, True), (64, True), (65, False)])
def test_what_a_program_can_hold_fits(size: int, fits: bool) -> None:
    policy = AuthorsAutoAugment(image_size=size, channels=3)
    assert autoaugment.fits(policy, blobs(1, 3, size)) == fits
    assert not autoaugment.fits(policy, blobs(1, 3, size + 1))


@pytest.mark.gpu
@pytest.mark.parametrize(("channels", "size"), [(3, 32), (1, 28), (3, 28), (3, 16), (3, 48), (1, 64), (3, 64)])
def test_thousands_of_drawn_views(channels: int, size: int) -> None:
    policy = AuthorsAutoAugment(image_size=size, channels=channels)
    params = policy.draw(4000, torch.Generator().manual_seed(4))
    off = levels_off(policy, blobs(2000, channels, size), params)
    moved = is_moved(params)
    once = moved & (params["op"] == Op.IDENTITY).any(1)
    assert off[~moved].max() == 0
    assert off[once].max() < 1.01
    assert share_off(off[once]) <= OFF
    assert share_off(off[moved]) <= OFF_AFTER_TWO
