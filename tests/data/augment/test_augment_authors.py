"""AutoAugment as the paper's authors have it, against scipy and Pillow, with which their code computes."""

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps
from scipy import ndimage  # type: ignore[import-untyped]
from torch import Tensor

from contune.data.augment import build_policy
from contune.data.augment.authors import choose_steps, magnitude_range, move
from contune.data.augment.autoaugment import autoaugment_levels
from contune.data.augment.spline import sample_spline
from contune.data.augment.subpolicies import SUB_POLICIES, Op

ENHANCERS = {
    Op.BRIGHTNESS: ImageEnhance.Brightness,
    Op.CONTRAST: ImageEnhance.Contrast,
    Op.COLOR: ImageEnhance.Color,
    Op.SHARPNESS: ImageEnhance.Sharpness,
}


def photographs(num: int, size: int) -> Tensor:
    generator = torch.Generator().manual_seed(size)
    coarse = torch.rand(num, 3, 5, 5, generator=generator) * 300 - 20
    smooth = torch.nn.functional.interpolate(coarse, size=(size, size), mode="bicubic")
    return (smooth + 6 * torch.randn(smooth.shape, generator=generator)).clamp(0, 255).to(torch.uint8)


def moved(levels: Tensor, op: Op, amount: float) -> Tensor:
    """With scipy, on (row, column) and with the amounts and signs of the authors' code."""
    size = levels.shape[-1]
    angle = np.deg2rad(amount) if op == Op.ROTATE else 0.0
    linear = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    shift = np.zeros(2)
    if op == Op.SHEAR_X:
        linear[0, 1] = amount
    elif op == Op.SHEAR_Y:
        linear[1, 0] = amount
    elif op == Op.TRANSLATE_X:
        shift[1] = amount
    elif op == Op.TRANSLATE_Y:
        shift[0] = amount
    centre = np.full(2, size / 2 + 0.5)
    offset = centre - linear @ centre + shift
    return torch.stack([torch.from_numpy(ndimage.affine_transform(c.numpy(), linear, offset)) for c in levels])


def in_their_bin(op: Op, bin_index: int, place: float, size: int) -> float:
    """The amount in the authors' code, `place` of the way through a bin."""
    ends: dict[Op, float] = {Op.SHEAR_X: 0.3, Op.SHEAR_Y: 0.3, Op.ROTATE: 30.0}
    largest = ends.get(op, size * 150 / 331)
    edges = np.linspace(-largest, largest, 11)
    return float(edges[bin_index] + place * (edges[bin_index + 1] - edges[bin_index]))


def recoloured(levels: Tensor, op: Op, bin_index: int, place: float) -> Tensor:
    image: Any = Image.fromarray(levels.permute(1, 2, 0).numpy())

    def uniform(first: float, last: float) -> float:
        edges = np.linspace(first, last, 11)
        return float(edges[bin_index] + place * (edges[bin_index + 1] - edges[bin_index]))

    if op in ENHANCERS:
        image = ENHANCERS[op](image).enhance(uniform(0.1, 1.9))
    elif op == Op.POSTERIZE:
        image = ImageOps.posterize(image, round(uniform(4, 8)))
    elif op == Op.SOLARIZE:
        image = ImageOps.solarize(image, uniform(0, 256))  # type: ignore[arg-type]  # a float does as well
    else:
        whole = {Op.INVERT: ImageOps.invert, Op.AUTOCONTRAST: ImageOps.autocontrast, Op.EQUALIZE: ImageOps.equalize}
        image = whole[op](image)
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


@pytest.mark.parametrize("size", [32, 22])
@pytest.mark.parametrize("sub_policy", range(25))
def test_a_sub_policy_is_that_of_scipy_and_pillow(sub_policy: int, size: int) -> None:
    """One step at a time, since what is off by a level may be equalized to more.

    Odd sizes and the ends of bins would put pixels exactly on the border, where either side is right.
    """
    places = [0.07, 0.31, 0.72, 0.94]
    images = photographs(len(places), size)
    for step, (op, _, bin_index) in enumerate(SUB_POLICIES[sub_policy]):
        chance = torch.full((len(places), 2), 2.0)
        chance[:, step] = -1.0
        place_BS = torch.tensor(places)[:, None].expand(-1, 2)
        op_BS, magnitude_BS = choose_steps(torch.full((len(places),), sub_policy), chance, place_BS, size)
        ours = autoaugment_levels(images, op_BS, magnitude_BS, move)
        for image, place, result in zip(images, places, ours, strict=True):
            if op <= Op.ROTATE:
                theirs = moved(image, op, in_their_bin(op, bin_index, place, size))
                off = (result - theirs.float()).abs()
                assert off.max() <= 1
                assert (off > 0).float().mean() < 2e-3
            else:
                theirs = recoloured(image, op, bin_index, place)
                assert (result - theirs.float()).abs().max() <= (2 if op in (Op.CONTRAST, Op.COLOR) else 1)


@pytest.mark.parametrize(
    ("op", "bin_index", "low", "high"),
    [
        (Op.ROTATE, 2, 12.0, 18.0),  # the authors' -18 to -12 degrees are clockwise
        (Op.TRANSLATE_X, 9, -32 * 150 / 331, -0.8 * 32 * 150 / 331),
        (Op.TRANSLATE_Y, 3, 0.2 * 32 * 150 / 331, 0.4 * 32 * 150 / 331),
        (Op.SHEAR_Y, 8, 0.18, 0.24),
        (Op.COLOR, 0, -0.9, -0.72),
        (Op.CONTRAST, 7, 0.36, 0.54),
        (Op.POSTERIZE, 7, 6.8, 7.2),
        (Op.SOLARIZE, 3, 76.8, 102.4),
        (Op.INVERT, 0, 0.0, 0.0),
    ],
)
def test_ranges_of_magnitudes(op: Op, bin_index: int, low: float, high: float) -> None:
    assert sorted(magnitude_range(op, bin_index, 32)) == pytest.approx([low, high])


def test_what_is_drawn_fills_its_bins_and_keeps_their_signs() -> None:
    num = 40_000
    params = build_policy("autoaugment-authors", image_size=32, channels=3).draw(num, torch.Generator().manual_seed(0))
    op, magnitude = params["op"], params["magnitude"]
    rotations = magnitude[op == Op.ROTATE]
    assert 12 <= rotations.min() < 12.1
    assert 17.9 < rotations.max() <= 18
    assert abs(rotations.mean().item() - 15) < 4 * (6 / 12**0.5) / len(rotations) ** 0.5
    assert (magnitude[op == Op.TRANSLATE_X] < 0).all()
    assert (magnitude[op == Op.POSTERIZE] == 7).all()
    # Their vertical shears move pixels sideways; there are no others in the policy.
    assert (op != Op.SHEAR_Y).all()
    assert magnitude[op == Op.SHEAR_X].min() > 0.11
    assert (magnitude[op == Op.IDENTITY] == 0).all()


def test_steps_happen_as_often_as_the_policy_says() -> None:
    num = 40_000
    params = build_policy("autoaugment-authors", image_size=32, channels=3).draw(num, torch.Generator().manual_seed(1))
    for step in range(2):
        expected = 1 - sum(steps[step][1] for steps in SUB_POLICIES) / len(SUB_POLICIES)
        seen = (params["op"][:, step] == Op.IDENTITY).float().mean().item()
        assert abs(seen - expected) < 4 * (expected * (1 - expected) / num) ** 0.5


def test_content_moves_left_for_bin_nine_and_what_comes_in_is_black() -> None:
    levels = torch.full((1, 3, 32, 32), 200.0)
    moved_left = move(levels, torch.tensor([Op.TRANSLATE_X]), torch.tensor([-10.0]))
    assert (moved_left[..., :22] == 200).all()
    assert (moved_left[..., 22:] == 0).all()


def test_a_spline_through_the_pixels_meets_them() -> None:
    levels = photographs(6, 17).float()
    identity = torch.tensor([[[1.0, 0, 0], [0, 1, 0]]]).expand(6, 2, 3)
    assert torch.equal(sample_spline(levels, identity), levels)
