from pathlib import Path

import numpy as np
import pytest
import torch
from image_files import png, random_pixels, write_png

from contune.data import load_dataset
from contune.data.images import EncodedImages, TensorImages
from contune.data.imageset import ImageSet
from contune.data.sequences import NumberedNames
from contune.data.traits import NUM_SAMPLED, measure, moments


def image_set(pictures: list[np.ndarray]) -> ImageSet:
    names = NumberedNames([("set", len(pictures))])
    return ImageSet(images=EncodedImages([png(x) for x in pictures], names), labels=None, names=names)


def test_moments_are_per_channel_over_all_pixels() -> None:
    x_NCHW = np.stack([random_pixels(seed) // np.array([1, 2, 4])[:, None, None] for seed in range(5)])
    mean, std = moments(x_NCHW.astype(np.uint8))
    scaled = x_NCHW.astype(np.uint8) / 255
    assert mean == pytest.approx(scaled.mean((0, 2, 3)), abs=5e-5)
    assert std == pytest.approx(scaled.std((0, 2, 3)), abs=5e-5)


def test_a_constant_set_can_still_be_divided_by_its_deviation() -> None:
    assert moments(np.full((2, 1, 4, 4), 51, dtype=np.uint8)) == ((0.2,), (round(1 / 255, 4),))


def test_small_images_are_measured_at_their_own_size() -> None:
    pictures = [random_pixels(seed, 8, 8) for seed in range(4)]
    assert (measure(image_set(pictures)).mean, measure(image_set(pictures)).std) == moments(np.stack(pictures))


def test_size_is_the_most_common_shorter_side() -> None:
    shapes = [(20, 10), (10, 30), (10, 10), (16, 16), (16, 40)]
    traits = measure(image_set([random_pixels(0, *shape) for shape in shapes]))
    assert (traits.image_size, traits.channels) == (10, 3)


def test_gray_images_have_one_channel() -> None:
    traits = measure(image_set([random_pixels(seed, channels=1) for seed in range(3)]))
    assert traits.channels == 1
    assert len(traits.mean) == len(traits.std) == 1


def test_only_evenly_spaced_images_are_looked_at() -> None:
    num = 3 * NUM_SAMPLED
    x_N1HW = torch.arange(num, dtype=torch.int64).mul(255).div(num - 1).round().to(torch.uint8).view(-1, 1, 1, 1)
    images = ImageSet(images=TensorImages(x_N1HW), labels=None, names=NumberedNames([("ramp", num)]))
    calls: list[tuple[int, int]] = []
    assert measure(images).mean[0] == pytest.approx(0.5, abs=1e-3)
    oblong = ImageSet(
        images=TensorImages(x_N1HW.expand(-1, 1, 1, 2)), labels=None, names=NumberedNames([("ramp", num)])
    )
    measure(oblong, progress=lambda done, total: calls.append((done, total)))
    assert calls[-1] == (NUM_SAMPLED, NUM_SAMPLED)


def test_measured_on_training_images_only(tmp_path: Path) -> None:
    for number in range(3):
        write_png(tmp_path / "train" / "a" / f"{number}.png", np.full((3, 4, 4), 51, dtype=np.uint8))
        write_png(tmp_path / "test" / "a" / f"{number}.png", np.full((3, 4, 4), 255, dtype=np.uint8))
    assert load_dataset(str(tmp_path)).mean == (0.2, 0.2, 0.2)
