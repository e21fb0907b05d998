"""Images that are decoded by worker processes as they are needed, and copied to the device one batch ahead.

Shapes: V views, B images, S side of the squares, C channels.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from contune.data.augment import Crops
from contune.data.broken import BrokenImageError
from contune.data.cut import Cut, whole
from contune.data.imageset import ImageSet
from contune.data.processes import forkserver
from contune.device import core_share
from contune.errors import UserError

DeviceBatch = tuple[Tensor, Tensor | None]
MOST_WORKERS = 32
"""Taken without being asked for: each holds a few batches, and a machine with more cores is seldom ours alone."""


class Order(NamedTuple):
    """What a worker is asked for: a batch."""

    indices: list[int]
    crops: Crops | None
    """Of each image's views; None: all of the image, once."""


class HostBatch(NamedTuple):
    images: Tensor
    """uint8 (B, S, S, C), or with crops (V, B, S, S, C): channels last, as decoders write them."""
    labels_B: Tensor | None


class HostBatches(Dataset[HostBatch | UserError]):
    """Batches by order. An image that cannot be read makes its error the batch: raised, it would bring a traceback."""

    def __init__(self, images: ImageSet, size: int, channels: int) -> None:
        self.images, self.size, self.channels = images, size, channels

    def __getitem__(self, order: Order) -> HostBatch | UserError:
        try:
            images = [self._pieces(index, _cut(order.crops, number)) for number, index in enumerate(order.indices)]
        except BrokenImageError as error:
            return BrokenImageError(str(error), error.reason)
        except UserError as error:
            return UserError(str(error))
        images_VBSSC = torch.from_numpy(np.stack(images, axis=1))
        labels = self.images.labels
        return HostBatch(
            images_VBSSC[0] if order.crops is None else images_VBSSC,
            None if labels is None else labels[order.indices],
        )

    def _pieces(self, index: int, cut: Cut) -> np.ndarray:
        return self.images.images.pieces(index, cut, self.size, self.channels)

    def read(self, orders: Iterable[Order], *, workers: int, pinned: bool) -> Iterator[HostBatch]:
        """A batch for each order, made by `workers` processes; 0: by this one."""
        loader = DataLoader(
            self,
            batch_size=None,
            sampler=orders,
            num_workers=workers,
            pin_memory=pinned,
            multiprocessing_context=forkserver() if workers else None,
            collate_fn=_as_it_is,
        )
        for batch in loader:
            if isinstance(batch, UserError):
                raise batch
            yield batch


def default_workers() -> int:
    """One for each core that is this process's share."""
    return min(MOST_WORKERS, core_share())


def to_device(batches: Iterable[HostBatch], device: torch.device) -> Iterator[DeviceBatch]:
    """The batches on the device, channels first. On a GPU each is copied while the one before it is worked on."""
    if device.type != "cuda":
        for batch in batches:
            yield _moved(batch, device)
        return
    side = torch.cuda.Stream(device)
    ahead: tuple[DeviceBatch, torch.cuda.Event] | None = None
    for batch in batches:
        with torch.cuda.stream(side):
            moving = _moved(batch, device), side.record_event()
        if ahead is not None:
            yield _received(*ahead)
        ahead = moving
    if ahead is not None:
        yield _received(*ahead)


def _moved(batch: HostBatch, device: torch.device) -> DeviceBatch:
    images = batch.images.to(device, non_blocking=True).movedim(-1, -3)
    images = images.clone(memory_format=torch.contiguous_format)  # by one channel, `contiguous` would let strides be
    return images, None if batch.labels_B is None else batch.labels_B.to(device, non_blocking=True)


def _received(batch: DeviceBatch, copied: torch.cuda.Event) -> DeviceBatch:
    """Only this batch's copy is waited for, and its memory is not given away before the work on it is done."""
    current = torch.cuda.current_stream(batch[0].device)
    current.wait_event(copied)
    for tensor in batch:
        if tensor is not None:
            tensor.record_stream(current)
    return batch


def _cut(crops: Crops | None, sample: int) -> Cut:
    return whole if crops is None else partial(crops.pieces, sample)


def _as_it_is(batch: Any) -> Any:
    return batch
