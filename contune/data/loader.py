"""Batches of raw images on the device: indexed from one resident tensor, or streamed from worker processes.

Shapes: V views, B images, C channels, S side of the squares.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from contune.console import Advance
from contune.data.images import ImageSet, map_in_workers, num_workers

if TYPE_CHECKING:
    from contune.data.augment.simaugment import Crops

Batch = tuple[Tensor, Tensor | None]
"""uint8 images (B, C, H, W), or cropped views (V, B, C, H, W), and labels (B,), all on the device."""

_BATCHES_AT_ONCE = 512


def build_loader(
    images: ImageSet,
    *,
    size: int,
    channels: int,
    device: torch.device,
    resident_gib: float,
    workers: int | None = None,
    advance: Advance | None = None,
) -> "Loader":
    """All images on the device if they need at most `resident_gib`, else decoded as needed by `workers` processes."""
    if len(images) * channels * size * size <= resident_gib * 2**30:
        return ResidentLoader(images.resident(size, channels, advance, workers).to(device), images.labels)
    return StreamLoader(images, size=size, channels=channels, device=device, workers=workers)


class ResidentLoader:
    """A data set as one uint8 tensor on the device. A batch is an index operation."""

    def __init__(self, images_NCHW: Tensor, labels_N: Tensor | None) -> None:
        self.images_NCHW = images_NCHW
        self.labels_N = None if labels_N is None else labels_N.to(images_NCHW.device)

    def __len__(self) -> int:
        return len(self.images_NCHW)

    def batches(self, indices: Iterable[Tensor], crops: "Iterable[Crops] | None" = None) -> Iterator[Batch]:
        """One batch for each tensor of indices, in order. The arguments are read ahead of their use.

        `crops` are ignored: the images here are squashed already, so the device crops them.
        """
        waiting = iter(indices)
        # Copy many indices at once: a copy per batch would make the host wait each time.
        while parts := list(islice(waiting, _BATCHES_AT_ONCE)):
            on_device = torch.cat(parts).to(self.images_NCHW.device).split([len(part) for part in parts])
            for indices_B in on_device:
                yield self.images_NCHW[indices_B], None if self.labels_N is None else self.labels_N[indices_B]


class StreamLoader:
    """A data set too large for the device. Worker processes decode and crop batches ahead of their use."""

    def __init__(
        self, images: ImageSet, *, size: int, channels: int, device: torch.device, workers: int | None
    ) -> None:
        self.images, self.size, self.channels, self.device = images, size, channels, device
        self.labels_N = None if images.labels is None else images.labels.to(device)
        self.workers = num_workers(len(images), workers)

    def __len__(self) -> int:
        return len(self.images)

    def batches(self, indices: Iterable[Tensor], crops: "Iterable[Crops] | None" = None) -> Iterator[Batch]:
        """As `ResidentLoader`. Workers start and end with this call, so ask for all epochs at once.

        With `crops`, one per batch, workers cut every view out of the whole picture.
        """
        with_crops = ((indices_B, None) for indices_B in indices) if crops is None else zip(indices, crops, strict=True)
        tasks = ((indices_B.tolist(), chosen) for indices_B, chosen in with_crops)
        pinned = self.device.type == "cuda"  # then the host does not wait for the copies
        for images, labels_B in map_in_workers(self._read, tasks, workers=self.workers, pinned=pinned):
            images = images.to(self.device, non_blocking=True).movedim(-1, -3)
            images = images.clone(memory_format=torch.contiguous_format)  # `contiguous` keeps odd strides of 1 channel
            yield images, None if labels_B is None else labels_B.to(self.device, non_blocking=True)

    def _read(self, task: "tuple[list[int], Crops | None]") -> Batch:
        """One batch, in a worker; channels last, as decoders write them."""
        indices, crops = task
        own = self.images
        images = [
            own.pieces(index, own.cut if crops is None else partial(crops.pieces, number), self.size, self.channels)
            for number, index in enumerate(indices)
        ]
        images_VBSSC = torch.from_numpy(np.stack(images, axis=1))
        return images_VBSSC[0] if crops is None else images_VBSSC, None if own.labels is None else own.labels[indices]


Loader = ResidentLoader | StreamLoader
"""A split of a data set that returns batches by index."""
