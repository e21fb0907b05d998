"""Sets of images: subsets, resident pixels, and the worker processes that decode."""

import os
import pickle
import signal
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from pictures import png, random_pixels

from contune.data import ImageSet
from contune.data import images as images_module
from contune.data.images import MOST_WORKERS, default_workers, map_in_workers, num_workers
from contune.errors import UserError


def encoded_set(num: int, side: int = 8) -> tuple[ImageSet, np.ndarray]:
    x_NCHW = np.stack([random_pixels(seed, side, side) for seed in range(num)])
    names = [f"set#{number}" for number in range(num)]
    return ImageSet(images=[*map(png, x_NCHW)], labels=torch.arange(num), names=names), x_NCHW


@pytest.mark.parametrize("workers", [None, 0, 2])
def test_resident_equals_one_by_one(workers: int | None) -> None:
    images, x_NCHW = encoded_set(600)
    calls: list[int] = []
    x = images.resident(8, 3, lambda done, text: calls.append(done), workers)
    assert np.array_equal(x.numpy(), x_NCHW)
    assert calls == list(range(1, 601))
    assert np.array_equal(images.decode(17, None, 3), x_NCHW[17])


def test_subset_picks_images_labels_and_names_nests_and_can_be_pickled() -> None:
    images, x_NCHW = encoded_set(10)
    part = pickle.loads(pickle.dumps(images.subset(torch.tensor([7, 2, 2, 9])).subset([3, 0])))
    assert part.labels.tolist() == [9, 7]
    assert list(part.names) == ["set#9", "set#7"]
    assert np.array_equal(part.resident(8, 3).numpy(), x_NCHW[[9, 7]])
    assert images.subset([]).resident(8, 3).shape == (0, 3, 8, 8)


def test_tensor_images_convert_like_encoded_ones() -> None:
    images, x_NCHW = encoded_set(6)
    same = ImageSet(images=torch.from_numpy(x_NCHW), names=images.names)
    for size, channels in ((8, 3), (8, 1), (5, 3), (11, 1)):
        assert torch.equal(same.resident(size, channels), images.resident(size, channels))
    gray = ImageSet(images=torch.from_numpy(x_NCHW[:, :1]), names=images.names)
    assert torch.equal(gray.resident(8, 3), torch.from_numpy(x_NCHW[:, :1]).expand(-1, 3, -1, -1))


def square(number: int) -> int:
    return number * number


@pytest.mark.parametrize("workers", [0, 2])
def test_results_come_in_order_and_tasks_are_read_a_little_ahead(workers: int) -> None:
    read = 0

    def tasks() -> Iterator[int]:
        nonlocal read
        for number in range(100):
            read += 1
            yield number

    before = torch.get_rng_state()
    results = map_in_workers(square, tasks(), workers=workers)
    assert next(results) == 0
    assert read <= 2 * workers + 2
    assert list(results) == [number * number for number in range(1, 100)]
    assert torch.equal(torch.get_rng_state(), before)


def die(number: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_worker_that_dies_is_an_error() -> None:
    with pytest.raises(UserError, match="worker process died"):
        list(map_in_workers(die, range(4), workers=1))


def test_workers_fit_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(12)), raising=False)
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    assert default_workers() == 12
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(256)))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert default_workers() == MOST_WORKERS
    assert num_workers(images_module.FEW) == 0
    assert num_workers(10**6) == MOST_WORKERS
    assert num_workers(10**6, 3) == 3
