"""The kernel of the plain policies against the policies themselves: crop, flip and padding, or nothing at all."""

import pytest
import torch
from fused_cases import DEVICE, MEAN, STD, assert_rounded, blobs, fused_views, shares_that_differ

from contune.data.augment import fused, normalise
from contune.data.augment.crop_flip import CropFlip, ResizeOnly
from contune.data.augment.kernels import crop_flip


@pytest.mark.parametrize(
    ("channels", "size", "padding"), [(3, 32, 4), (1, 28, 4), (3, 33, 0), (1, 8, 3), (3, 8, 11), (3, 40, 1)]
)
def test_crop_flip_is_equal_to_the_bit(channels: int, size: int, padding: int) -> None:
    policy = CropFlip(image_size=size, channels=channels, padding=padding)
    params = policy.draw(3 * 4, torch.Generator().manual_seed(size))
    assert shares_that_differ(policy, blobs(4, channels, size), params).max() == 0


@pytest.mark.parametrize(("channels", "size"), [(3, 32), (1, 33)])
def test_nothing_but_normalisation_is_equal_to_the_bit(channels: int, size: int) -> None:
    policy = ResizeOnly(image_size=size, channels=channels)
    images = blobs(3, channels, size)
    mean, std = MEAN[:channels], STD[:channels]
    ours = fused.fused_views(policy, images.to(DEVICE), {}, mean, std, num_views=2).cpu()
    assert torch.equal(ours, normalise(images / 255, mean, std).repeat(2, 1, 1, 1))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_the_rounded_view(dtype: torch.dtype) -> None:
    policy = CropFlip(image_size=12, channels=3)
    params, images = policy.draw(6, torch.Generator().manual_seed(0)), blobs(3, 3, 12)
    assert_rounded(fused_views(policy, images, params, dtype), fused_views(policy, images, params))


@pytest.mark.parametrize(("channels", "size"), [(3, 9), (1, 33)])
def test_every_number_is_written_and_none_beyond(channels: int, size: int) -> None:
    policy = CropFlip(image_size=size, channels=channels)
    params = {name: value.to(DEVICE) for name, value in policy.draw(4, torch.Generator().manual_seed(3)).items()}
    poisoned = torch.full((6, channels, size, size), float("nan"), device=DEVICE)
    poisoned = poisoned.contiguous(memory_format=torch.channels_last)
    images = blobs(2, channels, size).to(DEVICE)
    crop_flip.launch(policy, images, params, MEAN[:channels], STD[:channels], poisoned[1:5])
    assert poisoned[1:5].isfinite().all()
    assert poisoned[0].isnan().all()
    assert poisoned[5].isnan().all()
