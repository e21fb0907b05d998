"""torchvision's transforms, which are random by image, so they are called for one image at a time.

It has two generations of them and two kinds of images, Pillow's and uint8 tensors: the fastest here takes part.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from contune.bench.augment_task import MEAN, STD, Contestant, Started, Task, fastest
from contune.device import available_cores, torchvision

_TRIAL_IMAGES = 32
_PREFETCH = 2


def torchvision_contestants(policies: Sequence[str]) -> list[Contestant]:
    """In this process, and in a process on every core."""
    source = f"torchvision {torchvision.__version__}"
    starts = {"torchvision (one process)": _one_process, "torchvision (workers)": _workers}
    return [
        Contestant(name=name, policy=policy, source=source, start=start)
        for policy in policies
        if policy in _TRANSFORMS
        for name, start in starts.items()
    ]


def _autoaugment(lib: Any, size: int) -> list[Any]:
    return [*_crop_flip(lib, size), lib.AutoAugment(torchvision.transforms.AutoAugmentPolicy.CIFAR10)]


def _simaugment(lib: Any, size: int) -> list[Any]:
    bicubic = torchvision.transforms.InterpolationMode.BICUBIC
    return [
        lib.RandomResizedCrop(size, interpolation=bicubic, antialias=True),
        lib.RandomApply([lib.ColorJitter(0.8, 0.8, 0.8, 0.2)], p=0.8),
        lib.RandomGrayscale(0.2),
        lib.RandomApply([lib.GaussianBlur(13, (0.1, 2.0))], p=0.5),
        lib.RandomHorizontalFlip(),
    ]


def _crop_flip(lib: Any, size: int) -> list[Any]:
    return [lib.RandomCrop(size, padding=4), lib.RandomHorizontalFlip()]


_TRANSFORMS: dict[str, Callable[[Any, int], list[Any]]] = {
    "autoaugment": _autoaugment,
    "simaugment": _simaugment,
    "crop-flip": _crop_flip,
}


class Views(Dataset[Tensor]):
    """One view of each image, new each time it is asked for."""

    def __init__(self, images: Sequence[Any], transform: Callable[[Any], Tensor]) -> None:
        self.images, self.transform = images, transform

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Tensor:
        return self.transform(self.images[index])


def _views(task: Task) -> tuple[Views, str]:
    """The views in the fastest form, and its name."""
    v1, v2 = torchvision.transforms, import_module("torchvision.transforms.v2")
    tensors = list(task.images())
    pillows = [v1.functional.to_pil_image(image) for image in tensors]
    steps1, steps2 = (_TRANSFORMS[task.policy](lib, task.image_size) for lib in (v1, v2))
    to_float, normalize1, normalize2 = (
        v2.ToDtype(torch.float32, scale=True),
        v1.Normalize(MEAN, STD),
        v2.Normalize(MEAN, STD),
    )
    forms = {
        "Pillow images": Views(pillows, v1.Compose([*steps1, v1.ToTensor(), normalize1])),
        "uint8 tensors": Views(tensors, v1.Compose([*steps1, v1.ConvertImageDtype(torch.float32), normalize1])),
        "v2, Pillow images": Views(pillows, v2.Compose([*steps2, v2.PILToTensor(), to_float, normalize2])),
        "v2, uint8 tensors": Views(tensors, v2.Compose([*steps2, to_float, normalize2])),
    }
    form = fastest({name: partial(_make_some, views) for name, views in forms.items()})
    return forms[form], form


def _make_some(views: Views) -> None:
    for index in range(min(len(views), _TRIAL_IMAGES)):
        views[index]


@contextmanager
def _one_process(task: Task) -> Iterator[Started]:
    views, form = _views(task)
    every = range(task.num_views)
    yield Started(call=lambda: torch.stack([views[index] for index in every]).to(task.device), note=form)


class Repeated(Sampler[list[int]]):
    """The same batch again and again, until it is closed."""

    def __init__(self, num: int) -> None:
        self.num, self.closed = num, False

    def __iter__(self) -> Iterator[list[int]]:
        while not self.closed:
            yield list(range(self.num))


class Stream:
    """Batches of a loader with workers, which between two laps are idle."""

    def __init__(self, views: Views, task: Task, num_workers: int) -> None:
        self.device, self.sampler = task.device, Repeated(task.num_views)
        self.loader: DataLoader[Tensor] = DataLoader(
            views,
            batch_sampler=self.sampler,
            num_workers=num_workers,
            prefetch_factor=_PREFETCH,
            pin_memory=task.device.type == "cuda",
            persistent_workers=True,
        )
        self.batches: Iterator[Tensor] | None = None

    def next(self) -> Tensor:
        if self.batches is None:
            self.sampler.closed = False
            self.batches = iter(self.loader)
        return next(self.batches).to(self.device, non_blocking=True)

    def pause(self) -> None:
        """Nothing new is asked for, and what was asked for is waited for."""
        self.sampler.closed = True
        if self.batches is not None:
            deque(self.batches, maxlen=0)
        self.batches = None


@contextmanager
def _workers(task: Task) -> Iterator[Started]:
    """A batch is made by one worker and handed over in shared memory; on its way to a GPU it is pinned."""
    views, form = _views(task)
    num_workers = available_cores()
    stream = Stream(views, task, num_workers)
    yield Started(
        call=stream.next,
        pause=stream.pause,
        ahead=num_workers * _PREFETCH,
        note=f"{form}; {num_workers} workers",
    )
    del stream.loader  # with it go its processes
