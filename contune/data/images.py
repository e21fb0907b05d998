"""Pictures by index: already pixels, or still encoded and decoded when asked for.

Shapes: N images, C channels, H height, W width.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from contune.data.decode import Encoded, decode_image, pixels
from contune.data.sequences import Picked

Progress = Callable[[int, int], None]
"""Called with how many are done, and of how many."""

_IMAGES_PER_TASK = 16
_THUMBNAIL_PIXELS = 64 * 64


class Images(Protocol):
    def __len__(self) -> int: ...

    def decode(self, index: int, size: int | None, channels: int) -> np.ndarray:
        """uint8 (C, H, W); squashed to a square of `size`, or as large as it is where that is None."""
        ...


@dataclass(frozen=True, eq=False)
class TensorImages:
    """Pixels in memory."""

    tensor: Tensor
    """uint8 (N, C, H, W)"""

    def __len__(self) -> int:
        return len(self.tensor)

    def decode(self, index: int, size: int | None, channels: int) -> np.ndarray:
        x_CHW = self.tensor[index].numpy()
        if x_CHW.shape[0] == channels and (size is None or x_CHW.shape[1:] == (size, size)):
            return x_CHW
        gray = x_CHW.shape[0] == 1
        image = Image.fromarray(x_CHW[0] if gray else np.ascontiguousarray(x_CHW.transpose(1, 2, 0)))
        return pixels(image, size=size, channels=channels)

    def pick(self, positions: np.ndarray) -> "TensorImages":
        return TensorImages(self.tensor[torch.from_numpy(positions)])


@dataclass(frozen=True, eq=False)
class EncodedImages:
    """Files, or the bytes of files, decoded one at a time and never kept."""

    sources: Sequence[Encoded]
    names: Sequence[str]
    """What an error calls each one."""

    def __len__(self) -> int:
        return len(self.sources)

    def decode(self, index: int, size: int | None, channels: int) -> np.ndarray:
        return decode_image(self.sources[index], self.names[index], size=size, channels=channels)

    def pick(self, positions: np.ndarray) -> "EncodedImages":
        return EncodedImages(Picked(self.sources, positions), Picked(self.names, positions))


def decode_all(images: Images, size: int, channels: int, progress: Progress | None = None) -> Tensor:
    """All of them as one uint8 (N, C, size, size), decoded by as many threads as pay."""
    num = len(images)
    x_NCHW = torch.empty((num, channels, size, size), dtype=torch.uint8)
    out_NCHW = x_NCHW.numpy()

    def fill(start: int) -> int:
        stop = min(start + _IMAGES_PER_TASK, num)
        for index in range(start, stop):
            out_NCHW[index] = images.decode(index, size, channels)
        return stop - start

    done = 0
    with ThreadPoolExecutor(_num_threads(images, channels)) as pool:
        tasks = [pool.submit(fill, start) for start in range(0, num, _IMAGES_PER_TASK)]
        try:
            for task in as_completed(tasks):
                done += task.result()
                if progress is not None:
                    progress(done, num)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return x_NCHW


def _num_threads(images: Images, channels: int) -> int:
    """Pillow lets go of the interpreter lock while it decodes, which is most of the work for a photo.

    For a thumbnail it is the smaller part: two threads then get in each other's way and are slower than one.
    """
    if not len(images):
        return 1
    num_pixels = images.decode(len(images) // 2, None, channels)[0].size
    return (os.cpu_count() or 1) if num_pixels > _THUMBNAIL_PIXELS else 1
