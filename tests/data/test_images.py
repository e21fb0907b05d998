import pickle

import numpy as np
import pytest
import torch
from image_files import png, random_pixels

from contune.data.images import EncodedImages, TensorImages
from contune.data.imageset import ImageSet
from contune.data.sequences import NumberedNames, Picked
from contune.errors import UserError


def encoded_set(num: int, side: int = 8) -> tuple[ImageSet, np.ndarray]:
    x_NCHW = np.stack([random_pixels(seed, side, side) for seed in range(num)])
    names = NumberedNames([("set", num)])
    images = EncodedImages([png(x_CHW) for x_CHW in x_NCHW], names)
    return ImageSet(images=images, labels=torch.arange(num), names=names), x_NCHW


@pytest.mark.parametrize("side", [8, 80])  # a thumbnail takes one thread, larger images take all
def test_resident_equals_one_by_one(side: int) -> None:
    images, x_NCHW = encoded_set(40, side)
    assert np.array_equal(images.resident(side, 3).numpy(), x_NCHW)
    assert np.array_equal(images.images.decode(17, None, 3), x_NCHW[17])


def test_resident_reports_every_image_once() -> None:
    images, _ = encoded_set(40)
    calls: list[tuple[int, int]] = []
    images.resident(8, 3, progress=lambda done, total: calls.append((done, total)))
    assert calls == sorted(calls)
    assert calls[-1] == (40, 40)


def test_resident_names_the_bad_image() -> None:
    sources = [png(random_pixels(seed)) for seed in range(30)]
    sources[23] = sources[23][:60]
    names = NumberedNames([("set", 30)])
    images = ImageSet(images=EncodedImages(sources, names), labels=None, names=names)
    with pytest.raises(UserError, match="'set#23'"):
        images.resident(8, 3)


def test_subset_picks_images_labels_and_names_and_nests() -> None:
    images, x_NCHW = encoded_set(10)
    part = images.subset(torch.tensor([7, 2, 2, 9])).subset([3, 0])
    assert part.labels is not None
    assert part.labels.tolist() == [9, 7]
    assert list(part.names) == ["set#9", "set#7"]
    assert np.array_equal(part.resident(8, 3).numpy(), x_NCHW[[9, 7]])


def test_an_empty_subset_is_an_empty_tensor() -> None:
    images, _ = encoded_set(3)
    assert images.subset([]).resident(8, 3).shape == (0, 3, 8, 8)


def test_a_subset_travels_to_another_process() -> None:
    images, x_NCHW = encoded_set(5)
    again = pickle.loads(pickle.dumps(images.subset([4, 1])))
    assert list(again.names) == ["set#4", "set#1"]
    assert np.array_equal(again.images.decode(0, None, 3), x_NCHW[4])


def test_tensor_images_convert_like_encoded_ones() -> None:
    images, x_NCHW = encoded_set(6)
    same = ImageSet(images=TensorImages(torch.from_numpy(x_NCHW)), labels=None, names=images.names)
    for size, channels in ((8, 3), (8, 1), (5, 3), (11, 1)):
        assert torch.equal(same.resident(size, channels), images.resident(size, channels))
    gray = ImageSet(images=TensorImages(torch.from_numpy(x_NCHW[:, :1])), labels=None, names=images.names)
    assert torch.equal(gray.resident(8, 3), torch.from_numpy(x_NCHW[:, :1]).expand(-1, 3, -1, -1))


def test_tensor_images_of_the_right_shape_are_not_copied() -> None:
    x_NCHW = torch.zeros(2, 1, 4, 4, dtype=torch.uint8)
    images = ImageSet(images=TensorImages(x_NCHW), labels=None, names=["a", "b"])
    assert images.resident(4, 1).data_ptr() == x_NCHW.data_ptr()


def test_oblong_tensor_images_keep_their_shape_without_a_size() -> None:
    x_NCHW = torch.from_numpy(random_pixels(0, 4, 6)).unsqueeze(0)
    assert np.array_equal(TensorImages(x_NCHW).decode(0, None, 3), x_NCHW[0].numpy())
    assert TensorImages(x_NCHW).decode(0, 5, 3).shape == (3, 5, 5)


def test_numbered_names_count_inside_each_part() -> None:
    names = NumberedNames([("a", 2), ("empty", 0), ("b", 3)])
    assert list(names) == ["a#0", "a#1", "b#0", "b#1", "b#2"]
    assert names[-1] == "b#2"
    assert list(names[1:4:2]) == ["a#1", "b#1"]
    with pytest.raises(IndexError):
        names[5]


def test_picked_slices() -> None:
    picked = Picked("abcdef", np.array([5, 3, 1]))
    assert "".join(picked[1:]) == "db"
    assert picked[-1] == "b"
