"""Every AutoAugment operation on a batch of different parameters, against torchvision image by image."""

import math

import pytest
import torch
from torch import Tensor

from contune.data.augment.autoaugment import autoaugment_levels
from contune.data.augment.geometry import crop_flip
from contune.data.augment.lookup import histogram
from contune.data.augment.resample import resize
from contune.data.augment.subpolicies import Op
from contune.device import torchvision

TF = torchvision.transforms.functional
NEAREST = torchvision.transforms.InterpolationMode.NEAREST

TORCHVISION_NAMES = {
    Op.SHEAR_X: "ShearX",
    Op.SHEAR_Y: "ShearY",
    Op.TRANSLATE_X: "TranslateX",
    Op.TRANSLATE_Y: "TranslateY",
    Op.ROTATE: "Rotate",
    Op.BRIGHTNESS: "Brightness",
    Op.CONTRAST: "Contrast",
    Op.COLOR: "Color",
    Op.SHARPNESS: "Sharpness",
    Op.POSTERIZE: "Posterize",
    Op.SOLARIZE: "Solarize",
    Op.INVERT: "Invert",
    Op.AUTOCONTRAST: "AutoContrast",
    Op.EQUALIZE: "Equalize",
}
MAGNITUDES = {
    Op.SHEAR_X: [-0.3, -0.11, 0.07, 0.29],
    Op.SHEAR_Y: [-0.3, -0.11, 0.07, 0.29],
    Op.TRANSLATE_X: [-9.0, -1.0, 2.0, 5.0],
    Op.TRANSLATE_Y: [-9.0, -1.0, 2.0, 5.0],
    Op.ROTATE: [-30.0, -6.7, 3.3, 29.0],
    Op.POSTERIZE: [4.0, 5.0, 7.0, 8.0],
    Op.SOLARIZE: [0.0, 28.3, 128.0, 255.0],
}


def images_of_every_kind(channels: int, size: int) -> Tensor:
    """Noise, a narrow range, a smooth ramp, two levels, one level, all black, all white, mostly one level."""
    generator = torch.Generator().manual_seed(size + channels)
    shape = (channels, size, size)
    noise = torch.randint(0, 256, shape, generator=generator)
    narrow = torch.randint(90, 131, shape, generator=generator)
    ramp = torch.arange(size * size).mul(255).div(size * size, rounding_mode="floor").view(1, size, size)
    two = torch.where(noise > 100, 200, 13)
    rare = torch.where(noise > 250, noise, 77)
    flat = [torch.full(shape, level) for level in (41, 0, 255)]
    return torch.stack([noise, narrow, ramp.expand(shape), two, rare, *flat]).to(torch.uint8)


def steps(op: Op, magnitudes: Tensor) -> tuple[Tensor, Tensor]:
    return torch.full((len(magnitudes), 1), int(op)), magnitudes[:, None]


@pytest.mark.parametrize("size", [8, 17, 32])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("op", list(TORCHVISION_NAMES))
def test_operation_equals_torchvision_to_the_level(op: Op, channels: int, size: int) -> None:
    kinds = images_of_every_kind(channels, size)
    values = MAGNITUDES.get(op, [-0.9, -0.35, 0.2, 0.9])
    magnitudes = torch.tensor(values).repeat_interleave(len(kinds))
    images = kinds.repeat(len(values), 1, 1, 1)
    result = autoaugment_levels(images.float(), *steps(op, magnitudes))
    apply_op = torchvision.transforms.autoaugment._apply_op
    for image, magnitude, ours in zip(images, magnitudes.tolist(), result, strict=True):
        theirs = apply_op(image, TORCHVISION_NAMES[op], magnitude, interpolation=NEAREST, fill=None)
        torch.testing.assert_close(ours, theirs.float(), rtol=0, atol=0)


def test_a_mixed_batch_gives_each_sample_its_own_operation() -> None:
    ops = list(TORCHVISION_NAMES)
    image = images_of_every_kind(3, 16)[0]
    magnitudes = torch.tensor([MAGNITUDES.get(op, [0.5])[0] for op in ops])
    op_BS = torch.tensor([int(op) for op in ops])[:, None]
    mixed = autoaugment_levels(image.float().repeat(len(ops), 1, 1, 1), op_BS, magnitudes[:, None])
    for row, op in enumerate(ops):
        alone = autoaugment_levels(image.float()[None], *steps(op, magnitudes[row : row + 1]))
        assert torch.equal(mixed[row], alone[0]), op.name


def test_identity_keeps_every_level() -> None:
    images = images_of_every_kind(3, 16)
    nothing = torch.zeros(len(images), 2)
    assert torch.equal(autoaugment_levels(images.float(), nothing.long(), nothing), images.float())


def test_histogram_counts_each_channel() -> None:
    images = images_of_every_kind(3, 9)
    counts = histogram(images.flatten(2).long())
    for image, row in zip(images.flatten(2), counts, strict=True):
        for channel, column in zip(image, row, strict=True):
            assert torch.equal(column.long(), torch.bincount(channel, minlength=256))


@pytest.mark.parametrize(("channels", "height", "width", "padding"), [(3, 32, 32, 4), (1, 7, 11, 2), (3, 5, 4, 0)])
def test_crop_flip_equals_torchvision(channels: int, height: int, width: int, padding: int) -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (20, channels, height, width), generator=generator, dtype=torch.uint8)
    start = torch.randint(0, 2 * padding + 1, (20, 2), generator=generator)
    flip = torch.arange(20) % 2 == 0
    result = crop_flip(images, start, flip, padding)
    for image, (top, left), mirrored, ours in zip(images, start.tolist(), flip.tolist(), result, strict=True):
        theirs = TF.crop(TF.pad(image, [padding] * 4), top, left, height, width)
        assert torch.equal(ours, TF.hflip(theirs) if mirrored else theirs)


def test_crop_flip_does_not_mind_how_images_lie_in_memory() -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (6, 3, 9, 9), generator=generator, dtype=torch.uint8)
    start, flip = torch.randint(0, 5, (6, 2), generator=generator), torch.arange(6) % 2 == 0
    expected = crop_flip(images, start, flip, 2)
    for other in (images.to(memory_format=torch.channels_last), images.mT.contiguous().mT):
        assert torch.equal(crop_flip(other, start, flip, 2), expected)


@pytest.mark.parametrize(("height", "width", "size"), [(40, 31, 16), (9, 9, 20), (16, 16, 16)])
def test_resize_equals_torchvision(height: int, width: int, size: int) -> None:
    images = torch.randint(0, 256, (4, 3, height, width), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    assert torch.equal(resize(images, size), TF.resize(images, [size, size], antialias=True))


def test_rotation_is_counter_clockwise() -> None:
    image = torch.zeros(1, 1, 9, 9)
    image[0, 0, 4, 8] = 255.0  # at the right
    turned = autoaugment_levels(image, *steps(Op.ROTATE, torch.tensor([90.0])))
    assert turned[0, 0, 0, 4] == 255.0  # at the top
    assert math.isclose(turned.sum().item(), 255.0)
