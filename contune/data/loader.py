"""Batches of raw images on the device: from one tensor that lives there, or streamed from workers."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Protocol

import torch
from torch import Tensor

from contune.data.augment import Crops
from contune.data.imageset import ImageSet
from contune.data.stream import HostBatches, Order, default_workers, to_device

Batch = tuple[Tensor, Tensor | None]
"""uint8 images (B, C, H, W), or their views (V, B, C, H, W) cropped already, and labels (B,), all on the device."""

_BATCHES_AT_ONCE = 512


class Loader(Protocol):
    """A split of a data set, ready to be asked for batches by index."""

    labels_N: Tensor | None

    def __len__(self) -> int: ...

    def batches(self, indices: Iterable[Tensor], crops: Iterable[Crops] | None = None) -> Iterator[Batch]:
        """One batch for each tensor of indices, in that order; both arguments are read ahead of their use.

        With `crops`, one for each batch, a loader that decodes as it goes cuts every view out of the whole
        picture. One that has the images at hand, squashed, leaves crops to the device.
        """
        ...


def build_loader(
    images: ImageSet,
    *,
    size: int,
    channels: int,
    device: torch.device,
    resident_gib: float,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Loader:
    """All of `images` on the device if they take at most `resident_gib`, else decoded as they are needed.

    `workers` are the processes that decode; None: one for each core.
    """
    gib = len(images) * channels * size * size / 2**30
    if gib <= resident_gib:
        return ResidentLoader(images.resident(size, channels, progress).to(device), images.labels)
    if workers is None:
        workers = default_workers()
    return StreamLoader(images, size=size, channels=channels, device=device, workers=workers)


class ResidentLoader:
    """A data set as one uint8 tensor on the device; a batch is an index operation."""

    def __init__(self, images_NCHW: Tensor, labels_N: Tensor | None) -> None:
        self.images_NCHW = images_NCHW
        self.labels_N = None if labels_N is None else labels_N.to(images_NCHW.device)

    def __len__(self) -> int:
        return len(self.images_NCHW)

    def batches(self, indices: Iterable[Tensor], crops: Iterable[Crops] | None = None) -> Iterator[Batch]:
        waiting = iter(indices)
        # Many go over at once: a copy for each batch would make the host wait each time.
        while parts := list(islice(waiting, _BATCHES_AT_ONCE)):
            on_device = torch.cat(parts).to(self.images_NCHW.device).split([len(part) for part in parts])
            for indices_B in on_device:
                yield self.images_NCHW[indices_B], None if self.labels_N is None else self.labels_N[indices_B]


class StreamLoader:
    """A data set too large for the device: worker processes decode and cut batches ahead of their use."""

    def __init__(self, images: ImageSet, *, size: int, channels: int, device: torch.device, workers: int) -> None:
        self.images, self.size, self.channels = images, size, channels
        self.labels_N = None if images.labels is None else images.labels.to(device)
        self.device, self.workers = device, workers

    def __len__(self) -> int:
        return len(self.images)

    def batches(self, indices: Iterable[Tensor], crops: Iterable[Crops] | None = None) -> Iterator[Batch]:
        """The workers start with this call and end with it: ask for all epochs at once."""
        with_crops = ((indices_B, None) for indices_B in indices) if crops is None else zip(indices, crops, strict=True)
        orders = (Order(indices_B.tolist(), chosen) for indices_B, chosen in with_crops)
        host = HostBatches(self.images, self.size, self.channels)
        yield from to_device(host.read(orders, workers=self.workers, pinned=self.device.type == "cuda"), self.device)


def in_order(num: int, batch: int) -> list[Tensor]:
    """All indices once, first to last, for measuring."""
    return list(torch.arange(num).split(batch))
