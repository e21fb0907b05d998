"""SimAugment's operations and the whole policy, against torchvision's float path image by image."""

from typing import Any

import pytest
import torch
from augment_cases import random_images
from torch import Tensor

from contune.data.augment import build_policy
from contune.data.augment.ops import Params
from contune.data.augment.simaugment import (
    BRIGHTNESS,
    CONTRAST,
    HUE,
    SATURATION,
    SimAugment,
    blur_radius,
    crop_boxes,
    gaussian_blur,
    resized_crop,
    shift_hue,
)
from contune.device import torchvision

TF = torchvision.transforms.functional
MODES: dict[str, Any] = {
    "bicubic": torchvision.transforms.InterpolationMode.BICUBIC,
    "bilinear": torchvision.transforms.InterpolationMode.BILINEAR,
}
ADJUST = {
    BRIGHTNESS: TF.adjust_brightness,
    CONTRAST: TF.adjust_contrast,
    SATURATION: TF.adjust_saturation,
    HUE: TF.adjust_hue,
}
HALF_LEVEL = 0.5 / 255 + 1e-5


def drawn(num: int, **options: Any) -> Params:
    return SimAugment(image_size=16, channels=3, **options).draw(num, torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("height", "width", "size"), [(32, 32, 32), (40, 25, 17), (13, 21, 32), (64, 64, 24)])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear"])
def test_resized_crop(interpolation: Any, channels: int, height: int, width: int, size: int) -> None:
    num = 30
    images = random_images(num, channels, height, width)
    params = drawn(num, crop_scale=(0.02, 1.0), crop_ratio=(0.75, 1.33))
    start, box = crop_boxes(params, height, width, (0.75, 1.33))
    flip = torch.arange(num) % 3 == 0
    result = resized_crop(images.float(), start, box, flip, size, interpolation)
    result = (result / 255).clamp(0, 1)
    for image, corner, sides, mirrored, ours in zip(images, start, box, flip, result, strict=True):
        (top, left), (high, wide) = corner.int().tolist(), sides.int().tolist()
        theirs = TF.resized_crop(image, top, left, high, wide, [size, size], MODES[interpolation], antialias=True)
        theirs = TF.hflip(theirs) if mirrored else theirs
        torch.testing.assert_close(ours, theirs.float() / 255, rtol=0, atol=HALF_LEVEL)


@pytest.mark.parametrize(("ratio", "box"), [((20.0, 30.0), [1, 8]), ((0.03, 0.04), [8, 1])])
def test_a_box_is_never_of_no_pixels(ratio: tuple[float, float], box: list[int]) -> None:
    params = drawn(3, crop_scale=(0.9, 1.0), crop_ratio=ratio)
    _, size_B2 = crop_boxes(params, 8, 8, ratio)
    assert size_B2.tolist() == [box] * 3


def test_hue_equals_torchvision() -> None:
    images = random_images(24, 3, 9, 11).float() / 255
    images[0], images[1, 1:], images[2] = 0.3, 0.0, images[2].mean(0)  # flat, pure red, gray
    turns = torch.linspace(-0.5, 0.5, 24)
    for image, turn, ours in zip(images, turns.tolist(), shift_hue(images, turns), strict=True):
        torch.testing.assert_close(ours, TF.adjust_hue(image, turn), rtol=0, atol=2e-6)


@pytest.mark.parametrize(("channels", "size", "largest"), [(3, 32, 2.0), (1, 9, 2.0), (3, 5, 2.0), (3, 2, 1.0)])
def test_blur_equals_torchvision(channels: int, size: int, largest: float) -> None:
    images = random_images(12, channels, size, size).float() / 255
    sigmas = torch.linspace(0.1, largest, 12)
    radius = blur_radius(largest, size)
    assert radius == min(3 * largest, size - 1)
    for image, sigma, ours in zip(images, sigmas.tolist(), gaussian_blur(images, sigmas, radius), strict=True):
        theirs = TF.gaussian_blur(image, [2 * radius + 1] * 2, [sigma, sigma])
        torch.testing.assert_close(ours, theirs, rtol=0, atol=2e-6)


def torchvision_composition(image: Tensor, policy: SimAugment, params: Params, row: int) -> Tensor:
    height, width = image.shape[-2:]
    start, box = crop_boxes(params, height, width, policy.crop_ratio)
    (top, left), (high, wide) = start[row].int().tolist(), box[row].int().tolist()
    size = policy.image_size
    image = image.float() / 255
    image = TF.resized_crop(image, top, left, high, wide, [size, size], MODES[policy.interpolation], antialias=True)
    image = image.clamp(0, 1)
    strengths = [*params["jitter_factors"][row].tolist(), params["jitter_turn"][row].item()]
    for operation in params["jitter_order"][row].tolist():
        image = ADJUST[operation](image, strengths[operation])
    if params["gray"][row]:
        image = TF.rgb_to_grayscale(image, policy.channels)
    if params["blur_sigma"][row] > 0:
        kernel = 2 * blur_radius(policy.blur_sigma[1], size) + 1
        image = TF.gaussian_blur(image, [kernel, kernel], [params["blur_sigma"][row].item()] * 2)
    if params["solarize"][row]:
        image = torch.where(image >= 0.5, 1 - image, image)
    return TF.hflip(image) if params["flip"][row] else image


@pytest.mark.parametrize("name", ["simaugment", "simaugment-supervised"])
@pytest.mark.parametrize(("channels", "height", "width"), [(3, 32, 32), (1, 28, 28), (3, 41, 30)])
def test_policy_equals_torchvision_composition(name: str, channels: int, height: int, width: int) -> None:
    options = " solarize=0.3" if channels == 3 else ""
    policy = build_policy(name + options, image_size=24, channels=channels)
    assert isinstance(policy, SimAugment)
    images = random_images(40, channels, height, width)
    params = policy.draw(40, torch.Generator().manual_seed(9))
    result = policy.apply(images, params)
    assert result.shape == (40, channels, 24, 24)
    for row in range(40):
        theirs = torchvision_composition(images[row], policy, params, row)
        # A pixel that solarizing finds within rounding of 1/2 may fall on either side: 1 - x is x there.
        torch.testing.assert_close(result[row], theirs, rtol=0, atol=1e-4)


def test_frequencies() -> None:
    num = 40_000
    options = {"jitter_probability": 0.8, "gray": 0.2, "blur": 0.5, "solarize": 0.1, "flip": 0.3}
    params = drawn(num, **options)
    seen = {
        "jitter_probability": params["jitter_turn"] != 0,
        "gray": params["gray"],
        "blur": params["blur_sigma"] > 0,
        "solarize": params["solarize"],
        "flip": params["flip"],
    }
    for option, happened in seen.items():
        probability = options[option]
        bound = 4 * (probability * (1 - probability) / num) ** 0.5
        assert abs(happened.float().mean().item() - probability) < bound, option
    sigma = params["blur_sigma"][params["blur_sigma"] > 0]
    assert sigma.min() >= 0.1
    assert sigma.max() <= 2.0
    assert abs(sigma.mean().item() - 1.05) < 4 * (1.9 / 12**0.5) / len(sigma) ** 0.5
    orders = params["jitter_order"] @ torch.tensor([64, 16, 4, 1])
    values, counts = orders.unique(return_counts=True)
    assert len(values) == 24
    assert ((counts / num - 1 / 24).abs() < 4 * (1 / 24 / num) ** 0.5).all()
    factors = params["jitter_factors"][seen["jitter_probability"]]
    assert factors.min() >= 0.2 - 1e-6
    assert factors.max() <= 1.8 + 1e-6
    assert (factors.mean(0) - 1).abs().max() < 4 * (1.6 / 12**0.5) / len(factors) ** 0.5


@pytest.mark.parametrize(
    ("height", "width", "scale", "ratio"),
    [
        (32, 32, (0.08, 1.0), (3 / 4, 4 / 3)),
        (20, 45, (0.5, 1.0), (3 / 4, 4 / 3)),  # seldom fits: falls back to the centre
        (60, 24, (0.8, 1.0), (3 / 4, 4 / 3)),  # never fits
    ],
)
def test_boxes_are_distributed_as_torchvisions(
    height: int, width: int, scale: tuple[float, float], ratio: tuple[float, float]
) -> None:
    num = 2000
    params = drawn(num, crop_scale=scale, crop_ratio=ratio)
    start, box = crop_boxes(params, height, width, ratio)
    ours = torch.cat([start, box], dim=1)
    image = torch.zeros(1, height, width)
    get_params = torchvision.transforms.RandomResizedCrop.get_params
    with torch.random.fork_rng():
        torch.manual_seed(1)
        theirs = torch.tensor([get_params(image, list(scale), list(ratio)) for _ in range(num)]).float()
    assert ((ours[:, :2] >= 0) & (ours[:, :2] + ours[:, 2:] <= torch.tensor([height, width]))).all()
    quantities = [*ours.unbind(1), ours[:, 2] * ours[:, 3]], [*theirs.unbind(1), theirs[:, 2] * theirs[:, 3]]
    for a, b in zip(*quantities, strict=True):
        points = torch.cat([a, b]).unique()
        cumulative = [(values.sort().values.contiguous()) for values in (a, b)]
        gap = [torch.searchsorted(values, points, right=True) / num for values in cumulative]
        # Kolmogorov and Smirnov's bound at a level of 1e-4 for two samples of the same size.
        assert (gap[0] - gap[1]).abs().max() < 2.23 * (2 / num) ** 0.5
