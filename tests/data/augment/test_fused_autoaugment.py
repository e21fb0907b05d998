"""AutoAugment's kernel against the torch policy with the same parameters: all operations, all pairs, drawn ones."""

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
    shares_that_differ,
    torch_views,
    with_steps,
)
from torch import Tensor

from contune.data.augment.autoaugment import AutoAugment
from contune.data.augment.kernels import autoaugment
from contune.data.augment.subpolicies import Op

TIES = 1e-3
"""The share of moved pixels that may come from the neighbour: a sine's last bit decides where a coordinate is a tie.

Not at 30 degrees, where the sine is a half and so many coordinates of images with an odd side are ties.
"""


def assert_equal_but_for_ties(shares: Tensor, steps: list[Steps]) -> None:
    moved = torch.tensor([first in MOVES or second in MOVES for first, _, second, _ in steps])
    assert shares[~moved].max() == 0
    assert shares[moved].mean() <= TIES


@pytest.mark.parametrize(("channels", "size"), [(3, 32), (1, 28), (3, 33), (3, 8), (1, 8)])
def test_every_operation(channels: int, size: int) -> None:
    policy = AutoAugment(image_size=size, channels=channels)
    steps = every_operation()
    shares = shares_that_differ(policy, blobs(len(steps), channels, size), with_steps(policy, steps))
    assert_equal_but_for_ties(shares, steps)


@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_pairs_of_operations(every: int) -> None:
    policy = AutoAugment(image_size=12, channels=3, padding=1)
    steps = every_pair_of_operations()[::every]
    shares = shares_that_differ(policy, blobs(len(steps), 3, 12), with_steps(policy, steps))
    assert_equal_but_for_ties(shares, steps)


@pytest.mark.parametrize("op", [Op.CONTRAST, Op.AUTOCONTRAST, Op.EQUALIZE, Op.SHARPNESS])
def test_images_of_one_level_and_of_two(op: Op) -> None:
    images = torch.stack([torch.full((3, 17, 17), level) for level in (0, 41, 255)]).to(torch.uint8)
    images = torch.cat([images, images])
    images[3:, :, 5:9, 2:] = 200
    policy = AutoAugment(image_size=17, channels=3, padding=0)
    steps: list[Steps] = [(op, 0.7, Op.IDENTITY, 0.0)] * len(images)
    assert shares_that_differ(policy, images, with_steps(policy, steps)).max() == 0


def test_drawn_parameters_of_three_views() -> None:
    policy = AutoAugment(image_size=32, channels=3)
    params, images = policy.draw(3 * 10, torch.Generator().manual_seed(1)), blobs(10, 3, 32)
    ours = fused_views(policy, images, params)
    assert ours.is_contiguous(memory_format=torch.channels_last)
    assert (ours != torch_views(policy, images, params)).float().mean() <= TIES
    half = fused_views(policy, images, params, torch.bfloat16)
    assert half.is_contiguous(memory_format=torch.channels_last)
    assert_rounded(half, ours)


def test_images_of_another_layout_are_read_where_they_lie() -> None:
    policy = AutoAugment(image_size=16, channels=3)
    params, images = policy.draw(8, torch.Generator().manual_seed(2)), blobs(16, 3, 20)
    window = images.contiguous(memory_format=torch.channels_last)[::4, :, 2:18, 3:19]
    assert torch.equal(fused_views(policy, window, params), fused_views(policy, window.contiguous(), params))


@pytest.mark.parametrize(("channels", "size"), [(3, 9), (1, 33)])
def test_every_number_is_written_and_none_beyond(channels: int, size: int) -> None:
    policy = AutoAugment(image_size=size, channels=channels)
    params = {name: value.to(DEVICE) for name, value in policy.draw(4, torch.Generator().manual_seed(3)).items()}
    poisoned = torch.full((6, channels, size, size), float("nan"), device=DEVICE)
    poisoned = poisoned.contiguous(memory_format=torch.channels_last)
    images = blobs(2, channels, size).to(DEVICE)
    autoaugment.launch(policy, images, params, MEAN[:channels], STD[:channels], poisoned[1:5])
    assert poisoned[1:5].isfinite().all()
    assert poisoned[0].isnan().all()
    assert poisoned[5].isnan().all()


@pytest.mark.gpu
@pytest.mark.parametrize(("channels", "size"), [(3, 32), (1, 28), (3, 64), (3, 96)])
def test_thousands_of_drawn_views(channels: int, size: int) -> None:
    policy = AutoAugment(image_size=size, channels=channels)
    params = policy.draw(4000, torch.Generator().manual_seed(4))
    shares = shares_that_differ(policy, blobs(2000, channels, size), params)
    moved = torch.isin(params["op"], torch.tensor(MOVES)).any(1)
    assert shares[~moved].max() == 0
    assert shares[moved].mean() <= TIES
