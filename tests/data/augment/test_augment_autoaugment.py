"""The AutoAugment policy: its table, each sub-policy whole, and its frequencies, against torchvision."""

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from contune.data.augment import build_policy
from contune.data.augment.autoaugment import AutoAugment, autoaugment_levels, choose_steps
from contune.data.augment.subpolicies import SUB_POLICIES, Op, magnitude_of
from contune.device import torchvision

REFERENCE: Any = torchvision.transforms.AutoAugment(torchvision.transforms.AutoAugmentPolicy.CIFAR10)
apply_op = torchvision.transforms.autoaugment._apply_op


def torchvision_name(op: Op) -> str:
    return "AutoContrast" if op == Op.AUTOCONTRAST else op.name.title().replace("_", "")


def reference(image: Tensor, sub_policy: int, happens: tuple[bool, bool], negative: tuple[bool, bool]) -> Tensor:
    """torchvision's AutoAugment.forward with its choices forced, from its own tables."""
    space = REFERENCE._augmentation_space(10, tuple(image.shape[-2:]))
    for step, (name, _, bin_index) in enumerate(REFERENCE.policies[sub_policy]):
        magnitudes, signed = space[name]
        magnitude = float(magnitudes[bin_index]) if bin_index is not None else 0.0
        if happens[step]:
            magnitude = -magnitude if signed and negative[step] else magnitude
            image = apply_op(image, name, magnitude, interpolation=REFERENCE.interpolation, fill=None)
    return image


def natural_images(num: int, channels: int, size: int) -> Tensor:
    """Smooth colour blobs with a little noise: more like photographs than noise is."""
    generator = torch.Generator().manual_seed(7)
    coarse = torch.rand(num, channels, 4, 4, generator=generator) * 300 - 20
    smooth = torch.nn.functional.interpolate(coarse, size=(size, size), mode="bicubic")
    return (smooth + 6 * torch.randn(smooth.shape, generator=generator)).clamp(0, 255).to(torch.uint8)


def test_table_is_torchvisions() -> None:
    assert len(SUB_POLICIES) == len(REFERENCE.policies) == 25
    space = REFERENCE._augmentation_space(10, (32, 32))
    for ours, theirs in zip(SUB_POLICIES, REFERENCE.policies, strict=True):
        for (op, probability, bin_index), (name, their_probability, their_bin) in zip(ours, theirs, strict=True):
            assert (torchvision_name(op), probability) == (name, their_probability)
            expected = float(space[name][0][their_bin]) if their_bin is not None else 0.0
            expected = int(expected) if "Translate" in name else expected
            assert magnitude_of(op, bin_index, 32) == expected


@pytest.mark.parametrize(("channels", "size"), [(3, 32), (1, 28), (3, 15)])
@pytest.mark.parametrize("sub_policy", range(25))
def test_sub_policy_equals_torchvision_to_the_level(sub_policy: int, channels: int, size: int) -> None:
    cases = list(itertools.product([False, True], repeat=4))
    image = natural_images(1, channels, size)[0]
    happens = torch.tensor([case[:2] for case in cases])
    negative = torch.tensor([case[2:] for case in cases])
    # A chance of -1 is below every probability, and one of 2 above.
    chance = torch.where(happens, -1.0, 2.0)
    op_BS, magnitude_BS = choose_steps(torch.full((16,), sub_policy), chance, negative, size)
    result = autoaugment_levels(image.float().repeat(16, 1, 1, 1), op_BS, magnitude_BS)
    for (a, b, c, d), ours in zip(cases, result, strict=True):
        theirs = reference(image, sub_policy, (a, b), (c, d))
        torch.testing.assert_close(ours, theirs.float(), rtol=0, atol=0)


def test_frequencies_of_operations() -> None:
    num = 50_000
    params = build_policy("autoaugment", image_size=32, channels=3).draw(num, torch.Generator().manual_seed(0))
    expected = torch.zeros(2, len(Op))
    for steps in SUB_POLICIES:
        for step, (op, probability, _) in enumerate(steps):
            expected[step, op] += probability / 25
            expected[step, Op.IDENTITY] += (1 - probability) / 25
    for step in range(2):
        seen = torch.bincount(params["op"][:, step], minlength=len(Op)) / num
        bound = 4 * (expected[step] * (1 - expected[step]) / num).sqrt() + 1e-6
        assert ((seen - expected[step]).abs() <= bound).all()


def test_signs_flips_and_crops_are_even() -> None:
    num = 50_000
    params = build_policy("autoaugment", image_size=32, channels=3).draw(num, torch.Generator().manual_seed(1))
    op, magnitude = params["op"][:, 0], params["magnitude"][:, 0]
    rotations = magnitude[op == Op.ROTATE]
    assert rotations.sign().mean().abs() < 4 / len(rotations) ** 0.5
    assert (magnitude[op >= Op.POSTERIZE] >= 0).all()
    assert (params["flip"].float().mean() - 0.5).abs() < 4 * 0.5 / num**0.5
    starts = torch.bincount(params["crop_start"][:, 0], minlength=9) / num
    assert len(starts) == 9
    assert ((starts - 1 / 9).abs() < 4 * (1 / 9 * 8 / 9 / num) ** 0.5).all()


def test_both_steps_of_a_sample_are_drawn_apart() -> None:
    params = build_policy("autoaugment", image_size=32, channels=3).draw(40_000, torch.Generator().manual_seed(2))
    op = params["op"]
    # Sub-policy 21 is the only one that begins and ends with a vertical translation: 0.9 and 0.7 of 1/25.
    both = ((op == Op.TRANSLATE_Y).all(1)).float().mean().item()
    assert abs(both - 0.9 * 0.7 / 25) < 4 * (0.0252 / 40_000) ** 0.5


def statistics(views: Tensor) -> list[Tensor]:
    """Numbers that describe each view: its mean, its contrast, the pixel at (4, 4)."""
    return [views.mean((1, 2, 3)), views.std((2, 3)).mean(1), views[:, :, 4, 4].mean(1)]


def test_mean_and_spread_of_whole_pipeline_are_torchvisions() -> None:
    num = 1500
    image = natural_images(1, 3, 16)[0]
    policy = AutoAugment(image_size=16, channels=3, padding=2)
    params = policy.draw(num, torch.Generator().manual_seed(3))
    ours = policy.apply(image.repeat(num, 1, 1, 1), params)
    pipeline = torchvision.transforms.Compose(
        [
            torchvision.transforms.RandomCrop(16, padding=2),
            torchvision.transforms.RandomHorizontalFlip(),
            REFERENCE,
        ]
    )
    with torch.random.fork_rng():
        torch.manual_seed(4)
        theirs = torch.stack([pipeline(image) for _ in range(num)]).float() / 255
    for a, b in zip(statistics(ours), statistics(theirs), strict=True):
        standard_error = ((a.var() + b.var()) / num).sqrt()
        assert (a.mean() - b.mean()).abs() < 4 * standard_error
        assert 0.85 < a.std() / b.std() < 1.18
