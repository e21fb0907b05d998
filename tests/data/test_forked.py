"""Thumbnails decoded by copies of this process."""

import os
import signal
import sys

import numpy as np
import pytest
from image_files import png, random_pixels

from contune.data import forked
from contune.data.broken import BrokenImageError
from contune.data.images import EncodedImages, decode_all
from contune.data.sequences import NumberedNames

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only there are processes copied")
NUM = 600


@pytest.fixture(autouse=True)
def two_copies_for_few_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forked, "FEWEST", NUM)
    monkeypatch.setattr("contune.data.images.core_share", lambda: 2)


def thumbnails() -> tuple[list[bytes], np.ndarray]:
    x_NCHW = np.stack([random_pixels(seed) for seed in range(NUM)])
    return [png(x_CHW) for x_CHW in x_NCHW], x_NCHW


def images_of(sources: list[bytes]) -> EncodedImages:
    return EncodedImages(sources, NumberedNames([("set", len(sources))]))


def test_the_same_pixels_in_the_same_order() -> None:
    sources, x_NCHW = thumbnails()
    calls: list[tuple[int, int]] = []
    decoded_NCHW = decode_all(images_of(sources), 8, 3, lambda done, num: calls.append((done, num)))
    assert np.array_equal(decoded_NCHW.numpy(), x_NCHW)
    assert calls == [(256, NUM), (512, NUM), (NUM, NUM)]  # tasks, so it was copies that decoded


def test_a_broken_image_is_named() -> None:
    sources, _ = thumbnails()
    sources[523] = sources[523][:60]
    with pytest.raises(BrokenImageError, match="'set#523' is damaged"):
        decode_all(images_of(sources), 8, 3)


def test_copies_that_die_are_done_without() -> None:
    sources, x_NCHW = thumbnails()
    this = os.getpid()

    class Deadly(EncodedImages):
        def decode(self, index: int, size: int | None, channels: int) -> np.ndarray:
            if os.getpid() != this:
                os.kill(os.getpid(), signal.SIGKILL)
            return super().decode(index, size, channels)

    decoded_NCHW = decode_all(Deadly(sources, NumberedNames([("set", NUM)])), 8, 3)
    assert np.array_equal(decoded_NCHW.numpy(), x_NCHW)
