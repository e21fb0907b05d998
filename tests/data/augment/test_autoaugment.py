"""AutoAugment against torchvision: its table, each operation, each sub-policy, and its frequencies."""

import itertools
from typing import Any

import pytest
import torch
from augment_cases import MAGNITUDES, random_images, smooth_images
from torch import Tensor

from contune.data.augment.autoaugment import (
    AutoAugment,
    Op,
    all_at_once,
    autoaugment_levels,
    choose_steps,
    one_by_one,
)
from contune.device import torchvision

REFERENCE: Any = torchvision.transforms.AutoAugment(torchvision.transforms.AutoAugmentPolicy.CIFAR10)


def apply_op(image: Tensor, name: str, magnitude: float) -> Tensor:
    changed: Tensor = torchvision.transforms.autoaugment._apply_op(
        image, name, magnitude, interpolation=REFERENCE.interpolation, fill=None
    )
    return changed


def torchvision_name(op: Op) -> str:
    return "AutoContrast" if op == Op.AUTOCONTRAST else op.name.title().replace("_", "")


def reference(image: Tensor, sub_policy: int, happens: tuple[bool, bool], negative: tuple[bool, bool]) -> Tensor:
    """torchvision's AutoAugment.forward with its choices forced, from its own tables."""
    space = REFERENCE._augmentation_space(10, tuple(image.shape[-2:]))
    for step, (name, _, bin_index) in enumerate(REFERENCE.policies[sub_policy]):
        magnitudes, signed = space[name]
        magnitude = float(magnitudes[bin_index]) if bin_index is not None else 0.0
        if happens[step]:
            image = apply_op(image, name, -magnitude if signed and negative[step] else magnitude)
    return image


def images_of_every_kind(channels: int, size: int) -> Tensor:
    """Noise, a narrow range, a smooth ramp, two levels, mostly one level, one level, all black, all white."""
    noise = random_images(1, channels, size, size)[0].long()
    narrow = noise % 41 + 90
    ramp = torch.arange(size * size).mul(255).div(size * size, rounding_mode="floor").view(1, size, size)
    two, rare = torch.where(noise > 100, 200, 13), torch.where(noise > 250, noise, 77)
    flat = [torch.full_like(noise, level) for level in (41, 0, 255)]
    return torch.stack([noise, narrow, ramp.expand_as(noise), two, rare, *flat]).to(torch.uint8)


@pytest.mark.parametrize(("channels", "size"), [(1, 8), (3, 17), (3, 32)])
@pytest.mark.parametrize("op", [op for op in Op if op != Op.IDENTITY])
def test_operation_equals_torchvision_to_the_level(op: Op, channels: int, size: int) -> None:
    kinds = images_of_every_kind(channels, size)
    values = MAGNITUDES[op]
    magnitudes = torch.tensor(values).repeat_interleave(len(kinds))
    images = kinds.repeat(len(values), 1, 1, 1)
    result = autoaugment_levels(images.float(), torch.full((len(images), 1), int(op)), magnitudes[:, None])
    for image, magnitude, ours in zip(images, magnitudes.tolist(), result, strict=True):
        assert torch.equal(ours, apply_op(image, torchvision_name(op), magnitude).float())


@pytest.mark.parametrize(("channels", "size"), [(3, 32), (1, 28)])
@pytest.mark.parametrize("sub_policy", range(25))
def test_sub_policy_equals_torchvision_to_the_level(sub_policy: int, channels: int, size: int) -> None:
    cases = list(itertools.product([False, True], repeat=4))
    image = smooth_images(1, channels, size, size)[0]
    happens = torch.tensor([case[:2] for case in cases])
    negative = torch.tensor([case[2:] for case in cases])
    # A chance of -1 is below every probability, and one of 2 above.
    chance = torch.where(happens, -1.0, 2.0)
    op_BS, magnitude_BS = choose_steps(torch.full((16,), sub_policy), chance, negative, size)
    result = autoaugment_levels(image.float().repeat(16, 1, 1, 1), op_BS, magnitude_BS)
    for (a, b, c, d), ours in zip(cases, result, strict=True):
        assert torch.equal(ours, reference(image, sub_policy, (a, b), (c, d)).float())


@pytest.mark.parametrize(("channels", "size"), [(3, 32), (3, 15), (1, 28)])
def test_grouped_and_at_once_give_the_same_levels(channels: int, size: int) -> None:
    levels = torch.cat([smooth_images(150, channels, size, size), random_images(150, channels, size, size)])
    params = AutoAugment(image_size=size, channels=channels).draw(300, torch.Generator().manual_seed(1))
    op_BS = params["op"].masked_fill(params["op"] == Op.COLOR, Op.IDENTITY) if channels == 1 else params["op"]
    grouped, at_once = (way(levels, op_BS, params["magnitude"]) for way in (one_by_one, all_at_once))
    assert grouped.dtype == at_once.dtype == torch.float32
    assert torch.equal(grouped, at_once)


def test_frequencies_signs_flips_and_crops() -> None:
    num = 50_000
    params = AutoAugment(image_size=32, channels=3).draw(num, torch.Generator().manual_seed(0))
    op, magnitude = params["op"], params["magnitude"]
    expected = torch.zeros(2, len(Op))
    kinds = {torchvision_name(op): op for op in Op}
    for steps in REFERENCE.policies:
        for step, (name, probability, _) in enumerate(steps):
            expected[step, kinds[name]] += probability / 25
            expected[step, Op.IDENTITY] += (1 - probability) / 25
    for step in range(2):
        seen = torch.bincount(op[:, step], minlength=len(Op)) / num
        bound = 4 * (expected[step] * (1 - expected[step]) / num).sqrt() + 1e-6
        assert ((seen - expected[step]).abs() <= bound).all()
    # Sub-policy 21 is the only one that begins and ends with a vertical translation: 0.9 and 0.7 of 1/25.
    both = (op == Op.TRANSLATE_Y).all(1).float().mean().item()
    assert abs(both - 0.9 * 0.7 / 25) < 4 * (0.0252 / num) ** 0.5
    rotations = magnitude[op == Op.ROTATE]
    assert rotations.sign().mean().abs() < 4 / len(rotations) ** 0.5
    assert (magnitude[op >= Op.POSTERIZE] >= 0).all()
    assert (params["flip"].float().mean() - 0.5).abs() < 4 * 0.5 / num**0.5
    starts = torch.bincount(params["crop_start"][:, 0], minlength=9) / num
    assert ((starts - 1 / 9).abs() < 4 * (1 / 9 * 8 / 9 / num) ** 0.5).all()
