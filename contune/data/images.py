"""Pictures by index: already pixels, or still encoded and decoded when asked for.

Shapes: N images, V pieces of one, C channels, H height, W width, S side of a square.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from contune.data import forked
from contune.data.cut import Cut, cut_out, whole
from contune.data.decode import Encoded, channels_first, decode_image, decode_pieces, to_array
from contune.data.sequences import Picked
from contune.device import core_share

Progress = Callable[[int, int], None]
"""Called with how many are done, and of how many."""

_IMAGES_PER_TASK = 16
_THUMBNAIL_PIXELS = 64 * 64


class Images(Protocol):
    def __len__(self) -> int: ...

    def decode(self, index: int, size: int | None, channels: int) -> np.ndarray:
        """uint8 (C, H, W); squashed to a square of `size`, or as large as it is where that is None."""
        ...

    def pieces(self, index: int, cut: Cut, size: int, channels: int) -> np.ndarray:
        """uint8 (V, S, S, C): the pieces that `cut` chooses, each resized to a square of `size`."""
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
        x_HWC = self._pixels(index, channels) if size is None else self.pieces(index, whole, size, channels)[0]
        return channels_first(x_HWC)

    def pieces(self, index: int, cut: Cut, size: int, channels: int) -> np.ndarray:
        x_HWC = self._pixels(index, channels)
        height, width = x_HWC.shape[:2]
        return cut_out(x_HWC, cut(height, width), height, width, size)

    def _pixels(self, index: int, channels: int) -> np.ndarray:
        x_HWC = self.tensor[index].permute(1, 2, 0).numpy()
        if x_HWC.shape[2] == channels:
            return x_HWC
        gray = x_HWC.shape[2] == 1
        return to_array(Image.fromarray(x_HWC[..., 0] if gray else np.ascontiguousarray(x_HWC)), channels)

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

    def pieces(self, index: int, cut: Cut, size: int, channels: int) -> np.ndarray:
        return decode_pieces(self.sources[index], self.names[index], cut, size=size, channels=channels)

    def pick(self, positions: np.ndarray) -> "EncodedImages":
        return EncodedImages(Picked(self.sources, positions), Picked(self.names, positions))


def decode_all(images: Images, size: int, channels: int, progress: Progress | None = None) -> Tensor:
    """All of them as one uint8 (N, C, size, size), decoded by as many threads or processes as pay."""
    num = len(images)
    tell = progress or (lambda done, num: None)
    threads = core_share() if num and _are_photos(images, channels) else 1
    if threads == 1 and forked.worthwhile(num, core_share()):
        out_NCHW = forked.shared_array((num, channels, size, size))
        decode = partial(_decode, images, size, channels)
        if forked.decode_forked(decode, out_NCHW, core_share(), lambda done: tell(done, num)):
            return torch.from_numpy(out_NCHW)
    x_NCHW = torch.empty((num, channels, size, size), dtype=torch.uint8)
    _decode_in_threads(images, x_NCHW.numpy(), threads, tell)
    return x_NCHW


def _decode(images: Images, size: int, channels: int, index: int) -> np.ndarray:
    return images.decode(index, size, channels)


def _decode_in_threads(images: Images, out_NCHW: np.ndarray, threads: int, tell: Progress) -> None:
    num, channels, size, _ = out_NCHW.shape

    def fill(start: int) -> int:
        stop: int = min(start + _IMAGES_PER_TASK, num)
        for index in range(start, stop):
            out_NCHW[index] = images.decode(index, size, channels)
        return stop - start

    done = 0
    with ThreadPoolExecutor(threads) as pool:
        tasks = [pool.submit(fill, start) for start in range(0, num, _IMAGES_PER_TASK)]
        try:
            for task in as_completed(tasks):
                done += task.result()
                tell(done, num)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _are_photos(images: Images, channels: int) -> bool:
    """Pillow lets go of the interpreter lock while it decodes, which is most of the work for a photo.

    For a thumbnail it is the smaller part: two threads then get in each other's way and are slower than one.
    """
    num_pixels = images.decode(len(images) // 2, None, channels)[0].size
    return bool(num_pixels > _THUMBNAIL_PIXELS)
