"""Batches of raw images on the device: from one tensor that lives there, or streamed from workers."""

from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from contune.data.imageset import ImageSet
from contune.errors import UserError

Batch = tuple[Tensor, Tensor | None]
"""uint8 images (B, C, H, W) and labels (B,), both on the device."""


class Loader(Protocol):
    """A split of a data set, ready to be asked for batches by index."""

    labels_N: Tensor | None

    def __len__(self) -> int: ...

    def batches(self, indices: list[Tensor]) -> Iterator[Batch]:
        """One batch for each tensor of indices, in that order."""
        ...


def build_loader(
    images: ImageSet,
    *,
    size: int,
    channels: int,
    device: torch.device,
    resident_gib: float,
    workers: int,
    progress: Callable[[int, int], None] | None = None,
) -> Loader:
    """All of `images` on the device if they take at most `resident_gib`, else decoded as they are needed."""
    gib = len(images) * channels * size * size / 2**30
    if gib <= resident_gib:
        return ResidentLoader(images.resident(size, channels, progress).to(device), images.labels)
    return StreamLoader(images, size=size, channels=channels, device=device, workers=workers)


class ResidentLoader:
    """A data set as one uint8 tensor on the device; a batch is an index operation."""

    def __init__(self, images_NCHW: Tensor, labels_N: Tensor | None) -> None:
        self.images_NCHW = images_NCHW
        self.labels_N = None if labels_N is None else labels_N.to(images_NCHW.device)

    def __len__(self) -> int:
        return len(self.images_NCHW)

    def batches(self, indices: list[Tensor]) -> Iterator[Batch]:
        if not indices:
            return
        # All indices go over at once: a copy for each batch would make the host wait each time.
        on_device = torch.cat(indices).to(self.images_NCHW.device).split([len(part) for part in indices])
        for indices_B in on_device:
            yield self.images_NCHW[indices_B], None if self.labels_N is None else self.labels_N[indices_B]


class StreamLoader:
    """A data set too large for the device: worker processes decode each batch ahead of its use."""

    def __init__(self, images: ImageSet, *, size: int, channels: int, device: torch.device, workers: int) -> None:
        self.decoded = _Decoded(images, size, channels)
        self.labels_N = None if images.labels is None else images.labels.to(device)
        self.device = device
        self.workers = workers

    def __len__(self) -> int:
        return len(self.decoded)

    def batches(self, indices: list[Tensor]) -> Iterator[Batch]:
        loader = DataLoader(
            self.decoded,
            batch_sampler=[indices_B.tolist() for indices_B in indices],
            num_workers=self.workers,
            pin_memory=self.device.type == "cuda",
            multiprocessing_context="forkserver" if self.workers else None,
            collate_fn=_stack,
        )
        for indices_B, images_BCHW in zip(indices, loader, strict=True):
            if isinstance(images_BCHW, UserError):
                raise images_BCHW
            labels_B = None if self.labels_N is None else self.labels_N[indices_B.to(self.device)]
            yield images_BCHW.to(self.device, non_blocking=True), labels_B


class _Decoded(Dataset[Tensor | UserError]):
    """An image that cannot be read comes as its error: one raised in a worker would bring the worker's traceback."""

    def __init__(self, images: ImageSet, size: int, channels: int) -> None:
        self.images, self.size, self.channels = images, size, channels

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Tensor | UserError:
        try:
            image_CHW = self.images.images.decode(index, self.size, self.channels)
        except UserError as error:
            return UserError(str(error))
        return torch.from_numpy(np.ascontiguousarray(image_CHW))


def _stack(decoded: list[Tensor | UserError]) -> Tensor | UserError:
    error = next((item for item in decoded if isinstance(item, UserError)), None)
    return error or torch.stack([item for item in decoded if isinstance(item, Tensor)])


def in_order(num: int, batch: int) -> list[Tensor]:
    """All indices once, first to last, for measuring."""
    return list(torch.arange(num).split(batch))
