"""Sets of images by index, the worker processes that decode them, and the batches of images on the device.

Shapes: N images, B of a batch, V pieces or views of one, C channels, H height, W width, S side of a square.
"""

import os
import shutil
import signal
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from multiprocessing import parent_process
from multiprocessing.util import get_temp_dir
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from contune.console import Advance
from contune.data.decode import RESIZES, Broken, BrokenImageError, Cut, Encoded, Ranges, decode_pieces, pieces_of, whole
from contune.device import core_share
from contune.errors import UserError

if TYPE_CHECKING:
    from contune.data.augment.simaugment import Crops
    from contune.models.saved import EncoderSpec

Batch = tuple[Tensor, Tensor | None]
"""uint8 images (B, C, H, W), or cropped views (V, B, C, H, W), and labels (B,), all on the device."""

FEW = 256
"""Up to this many images are decoded by this process: starting workers would take longer."""
MOST_WORKERS = 32
"""Each worker holds a few batches, and machines with more cores are usually shared."""
_TASK_BYTES = 2**22
_BATCHES_AT_ONCE = 512


@dataclass(frozen=True, kw_only=True, eq=False)
class ImageSet:
    """The images of one split: pixels in memory, or picture files that are decoded one at a time and never kept."""

    images: Tensor | Sequence[Encoded]
    """uint8 (N, C, H, W), or files."""
    labels: Tensor | None = None
    """int64 (N,), positions in the data set's `class_names`, or for several labels per image a float (N, K) matrix of
    0 and 1; None without labels."""
    names: Sequence[str]
    """A path or 'name#index' per image, for reports and error messages."""
    cut: Cut = whole
    """How `decode` makes squares."""
    bits: int = 16
    """How many of the bits of a 16-bit file are in use."""
    ranges: Ranges | None = None
    """Which values of floats and other arrays become 0 and 255; None: each file's own smallest and largest."""

    def __len__(self) -> int:
        return len(self.images)

    def subset(self, indices: Tensor | np.ndarray | Sequence[int]) -> "ImageSet":
        """The images at these positions, in this order."""
        positions, images = np.asarray(indices, dtype=np.int64), self.images
        return replace(
            self,
            images=images[positions] if isinstance(images, Tensor) else list(map(images.__getitem__, positions)),
            labels=None if self.labels is None else self.labels[positions],
            names=list(map(self.names.__getitem__, positions)),
        )

    def as_seen_by(self, spec: "EncoderSpec") -> "ImageSet":
        """The same images, decoded as for this encoder."""
        return replace(self, cut=RESIZES[spec.resize], bits=spec.bits, ranges=spec.ranges)

    def pieces(self, index: int, cut: Cut, size: int | None, channels: int) -> np.ndarray:
        """uint8 (V, S, S, C): the pieces that `cut` chooses, each resized to a square of `size`.

        A size of None returns the whole image at its own height and width, 0 channels its own ones.
        """
        if not isinstance(self.images, Tensor):
            source, name = self.images[index], self.names[index]
            return decode_pieces(source, name, cut, size=size, channels=channels, bits=self.bits, ranges=self.ranges)
        return pieces_of(self.images[index].permute(1, 2, 0).numpy(), self.names[index], cut, size, channels)

    def decode(self, index: int, size: int | None, channels: int) -> np.ndarray:
        """One image as uint8 (C, S, S); a size of None keeps its own height and width."""
        return np.ascontiguousarray(self.pieces(index, self.cut, size, channels)[0].transpose(2, 0, 1))

    def decode_all(
        self, size: int, channels: int, *, workers: int | None = None, stop: bool = False
    ) -> Iterator[np.ndarray | BrokenImageError]:
        """`decode` of all images, by worker processes. Instead of a broken image comes its error; `stop` raises it."""
        at_once = max(1, min(64, _TASK_BYTES // max(1, channels * size * size)))
        decode = partial(self.decode, size=size, channels=channels)
        workers = num_workers(len(self), workers)
        return map_in_workers(decode, range(len(self)), workers=workers, at_once=at_once, stop=stop)

    def resident(self, size: int, channels: int, advance: Advance | None = None, workers: int | None = None) -> Tensor:
        """All images as uint8 (N, C, size, size). Pixels that already have this shape are not copied."""
        if isinstance(self.images, Tensor) and self.images.shape[1:] == (channels, size, size):
            return self.images
        x_NCSS: np.ndarray = np.empty((len(self), channels, size, size), dtype=np.uint8)
        for number, x_CSS in enumerate(self.decode_all(size, channels, workers=workers, stop=True)):
            x_NCSS[number] = x_CSS
            if advance is not None:
                advance(number + 1, "")
        return torch.from_numpy(x_NCSS)

    def label_names(self, class_names: Sequence[str]) -> list[list[str]]:
        """Of each image, the names of its labels; none without labels."""
        names: list[list[str]] = [[] for _ in self.names]
        if self.labels is not None:
            rows = enumerate(self.labels.tolist()) if self.labels.dim() == 1 else self.labels.nonzero().tolist()
            for index, label in rows:
                names[index].append(class_names[label])
        return names


@dataclass(frozen=True, kw_only=True)
class Traits:
    """What a config starts from: the size and colors of the images."""

    image_size: int
    """The native size; for images of many sizes the most common shorter side."""
    channels: int
    """1 if every image is gray, 3 for color, else those of the files."""
    mean: tuple[float, ...]
    """Per channel, of pixels scaled to 0..1."""
    std: tuple[float, ...]
    bits: int = 16
    """In use, of 16-bit files."""
    ranges: Ranges = ()
    """Of floats and other arrays."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Splits:
    """What a source holds, before images are held out or measured."""

    train: ImageSet
    test: ImageSet | None = None
    val: ImageSet | None = None
    class_names: tuple[str, ...] = ()
    """Empty without labels."""
    traits: Traits | None = None
    """None if the literature has no standard values; they are measured then."""

    def parts(self) -> dict[str, ImageSet]:
        """The splits that there are, by name."""
        parts = {"train": self.train, "test": self.test, "val": self.val}
        return {name: images for name, images in parts.items() if images is not None}


@dataclass(frozen=True, kw_only=True, eq=False)
class Dataset(Splits, Traits):
    """A data set ready to train on."""

    name: str
    skipped: tuple[Broken, ...] = ()
    """Broken images that were left out."""
    unseen: ImageSet | None = None
    """All images of classes that were held out as a whole; their labels continue those of `class_names`."""
    held_out: tuple[str, ...] = ()
    """Which of `test` and `val` were drawn from the training images."""


def distinct(class_names: Iterable[str]) -> tuple[str, ...]:
    """Classes that share a name get their number: `crane (class 134)`, `crane (class 517)`."""
    names = tuple(class_names)
    count = Counter(names)
    return tuple(f"{name} (class {k})" if count[name] > 1 else name for k, name in enumerate(names))


def map_in_workers(
    function: Callable[[Any], Any],
    tasks: Iterable[Any],
    *,
    workers: int,
    at_once: int = 1,
    stop: bool = True,
    pinned: bool = False,
) -> Iterator[Any]:
    """`function` of each task, in order, by worker processes that start now and end with the iteration.

    Tasks are read a few ahead of their results; a worker gets `at_once` of them at a time. With `workers=0` this
    process does the work. Without `stop`, a UserError takes the place of its result instead of being raised.
    """
    if workers and len(get_temp_dir()) > 89:  # the path of a socket in it has at most 107, else results are lost
        raise UserError(f"the path of the temporary folder {get_temp_dir()} is too long; set TMPDIR to a shorter one")
    # Forked workers start at once and share the images' memory.
    context = "fork" if workers and sys.platform == "linux" else None
    loader = DataLoader(
        _Calls(function),
        batch_size=at_once,
        sampler=tasks,
        num_workers=workers,
        pin_memory=pinned,
        multiprocessing_context=context,
        collate_fn=list,
        worker_init_fn=_begin_worker,
        generator=torch.Generator(),  # the default one would advance the random numbers of training
    )
    results = None
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*multi-threaded, use of fork", category=DeprecationWarning)
            results = iter(loader)
        for result in chain.from_iterable(results):
            if stop and isinstance(result, UserError):
                raise result
            yield result
    except RuntimeError as error:
        if "DataLoader worker" not in str(error):
            raise
        raise UserError("a worker process died, probably out of memory; use fewer workers") from error
    finally:
        results = None  # ends the workers now, not when a traceback is collected as garbage


def num_workers(num_images: int, workers: int | None = None) -> int:
    """The given number, else the default, or none for a few images."""
    default = 0 if num_images <= FEW else default_workers()
    return default if workers is None else workers


def default_workers() -> int:
    """One for each core of this process's share."""
    return min(MOST_WORKERS, core_share())


class _Calls(torch.utils.data.Dataset[Any]):
    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def __getitem__(self, task: Any) -> Any:
        try:
            return self.function(task)
        except UserError as error:  # raised in a worker, it would arrive with a traceback as its message
            return error


def _begin_worker(number: int) -> None:
    """Ctrl-C and SIGTERM are for the main process, whose handlers a fork inherits."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Torch's own watchdog looks for the parent only between tasks, and then waits for results to be read."""
    parent = parent_process()
    while parent is not None and os.getppid() == parent.pid:
        time.sleep(1)
    shutil.rmtree(get_temp_dir(), ignore_errors=True)  # the sockets over which tensors are sent
    os._exit(1)


def build_loader(
    images: ImageSet,
    spec: "EncoderSpec",
    device: torch.device,
    *,
    resident_gib: float,
    workers: int | None = None,
    advance: Advance | None = None,
) -> "Loader":
    """All images on the device if they need at most `resident_gib`, else decoded as needed by `workers` processes."""
    images, size, channels = images.as_seen_by(spec), spec.image_size, spec.channels
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
            on_device = torch.cat(parts).to(self.images_NCHW.device).split(list(map(len, parts)))
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
