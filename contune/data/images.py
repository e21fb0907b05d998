"""Sets of images by index: pixels in memory, or encoded pictures that worker processes decode.

Shapes: N images, V pieces of one, C channels, H height, W width, S side of a square.
"""

import signal
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader

from contune.data.decode import RESIZES, Broken, Cut, Encoded, channels_first, cut_out, decode_pieces, to_array, whole
from contune.device import core_share
from contune.errors import UserError

T = TypeVar("T")
Result = TypeVar("Result")
Progress = Callable[[int, int], None]
"""Called with the number of images done and their total."""

FEW = 256
"""Up to this many images are decoded by this process: starting workers would take longer."""
MOST_WORKERS = 32
"""Each worker holds a few batches, and machines with more cores are usually shared."""
_TASK_BYTES = 2**22


@dataclass(frozen=True, eq=False)
class TensorImages:
    """Pixels in memory."""

    tensor: Tensor
    """uint8 (N, C, H, W)"""
    cut: Cut = whole
    """How `decode` makes squares."""

    def __len__(self) -> int:
        return len(self.tensor)

    def decode(self, index: int, size: int | None, channels: int) -> np.ndarray:
        """uint8 (C, H, W), a square of `size`; None keeps the image's own height and width."""
        x_HWC = self._pixels(index, channels) if size is None else self.pieces(index, self.cut, size, channels)[0]
        return channels_first(x_HWC)

    def pieces(self, index: int, cut: Cut, size: int, channels: int) -> np.ndarray:
        """uint8 (V, S, S, C): the pieces that `cut` chooses, each resized to a square of `size`."""
        x_HWC = self._pixels(index, channels)
        height, width = x_HWC.shape[:2]
        return cut_out(x_HWC, cut(height, width), height, width, size)

    def pick(self, positions: np.ndarray) -> "TensorImages":
        return replace(self, tensor=self.tensor[torch.from_numpy(positions)])

    def _pixels(self, index: int, channels: int) -> np.ndarray:
        x_HWC = self.tensor[index].permute(1, 2, 0).numpy()
        if x_HWC.shape[2] == channels:
            return x_HWC
        gray = x_HWC.shape[2] == 1
        return to_array(Image.fromarray(x_HWC[..., 0] if gray else np.ascontiguousarray(x_HWC)), channels)


@dataclass(frozen=True, eq=False)
class EncodedImages:
    """Picture files, decoded one at a time and never kept. Methods as in `TensorImages`."""

    sources: Sequence[Encoded]
    names: Sequence[str]
    """For error messages."""
    cut: Cut = whole
    bits: int = 16
    """How many of the bits of a 16-bit file are in use."""

    def __len__(self) -> int:
        return len(self.sources)

    def decode(self, index: int, size: int | None, channels: int) -> np.ndarray:
        source, name = self.sources[index], self.names[index]
        return channels_first(decode_pieces(source, name, self.cut, size=size, channels=channels, bits=self.bits)[0])

    def pieces(self, index: int, cut: Cut, size: int, channels: int) -> np.ndarray:
        source, name = self.sources[index], self.names[index]
        return decode_pieces(source, name, cut, size=size, channels=channels, bits=self.bits)

    def pick(self, positions: np.ndarray) -> "EncodedImages":
        return replace(self, sources=[self.sources[i] for i in positions], names=[self.names[i] for i in positions])


Images = TensorImages | EncodedImages


@dataclass(frozen=True, kw_only=True, eq=False)
class ImageSet:
    """The images of one split."""

    images: Images
    labels: Tensor | None
    """int64 (N,), positions in the data set's `class_names`, or for several labels per image a float (N, K) matrix of
    0 and 1; None without labels."""
    names: Sequence[str]
    """A path or 'name#index' per image, for reports and error messages."""

    def __len__(self) -> int:
        return len(self.images)

    def subset(self, indices: Tensor | np.ndarray | Sequence[int]) -> "ImageSet":
        """The images at these positions, in this order."""
        positions = np.asarray(indices, dtype=np.int64)
        return ImageSet(
            images=self.images.pick(positions),
            labels=None if self.labels is None else self.labels[torch.from_numpy(positions)],
            names=[self.names[i] for i in positions],
        )

    def as_seen_with(self, resize: str, bits: int) -> "ImageSet":
        """The same images, decoded with these settings of an encoder."""
        settings: dict[str, Any] = {"bits": bits} if isinstance(self.images, EncodedImages) else {}
        return replace(self, images=replace(self.images, cut=RESIZES[resize], **settings))

    def resident(
        self, size: int, channels: int, progress: Progress | None = None, workers: int | None = None
    ) -> Tensor:
        """All images as uint8 (N, C, size, size). Pixels that already have this shape are not copied."""
        if isinstance(self.images, TensorImages) and self.images.tensor.shape[1:] == (channels, size, size):
            return self.images.tensor
        num, done = len(self), 0
        x_NCSS = torch.empty((num, channels, size, size), dtype=torch.uint8)
        decode = partial(_decode_range, self.images, size, channels)
        tasks = ranges(num, max(1, min(512, _TASK_BYTES // (channels * size * size))))
        for part_BCSS in map_in_workers(decode, tasks, workers=num_workers(num, workers)):
            x_NCSS[done : done + len(part_BCSS)] = torch.from_numpy(part_BCSS)
            done += len(part_BCSS)
            if progress is not None:
                progress(done, num)
        return x_NCSS


def _decode_range(images: Images, size: int, channels: int, task: range) -> np.ndarray:
    return np.stack([images.decode(index, size, channels) for index in task])


@dataclass(frozen=True, kw_only=True)
class Traits:
    """What a config starts from: the size and colors of the images."""

    image_size: int
    channels: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    bits: int = 16
    """In use, of 16-bit files."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Splits:
    """What a source holds, before images are held out or measured."""

    train: ImageSet
    test: ImageSet | None = None
    val: ImageSet | None = None
    class_names: tuple[str, ...] = ()
    traits: Traits | None = None
    """None if the literature has no standard values; they are measured then."""
    maybe_labels: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class Dataset:
    """A data set ready to train on."""

    name: str
    train: ImageSet
    test: ImageSet | None
    val: ImageSet | None
    class_names: tuple[str, ...]
    """Empty without labels."""
    image_size: int
    """The native size; for images of many sizes the most common shorter side."""
    channels: int
    """1 if every image is gray, else 3."""
    mean: tuple[float, ...]
    """Per channel, of pixels scaled to 0..1."""
    std: tuple[float, ...]
    bits: int = 16
    skipped: tuple[Broken, ...] = ()
    """Broken images that were left out."""
    held_out: tuple[str, ...] = ()
    """Which of `test` and `val` were drawn from the training images."""
    maybe_labels: tuple[str, ...] = ()
    """Columns that could hold labels, if none has a usual name."""


def distinct(class_names: Iterable[str]) -> tuple[str, ...]:
    """Classes that share a name get their number: `crane (class 134)`, `crane (class 517)`."""
    names = tuple(class_names)
    count = Counter(names)
    return tuple(f"{name} (class {k})" if count[name] > 1 else name for k, name in enumerate(names))


def map_in_workers(
    function: Callable[[T], Result], tasks: Iterable[T], *, workers: int, pinned: bool = False
) -> Iterator[Result]:
    """`function` of each task, in order, by worker processes that start now and end with the iteration.

    Tasks are read a few ahead of their results. With `workers=0` this process does the work.
    """
    # Forked workers start at once and share the images' memory. Torch's own watchdog ends them if this process dies.
    context = "fork" if workers and sys.platform == "linux" else None
    loader = DataLoader(
        _Calls(function),
        batch_size=None,
        sampler=tasks,
        num_workers=workers,
        pin_memory=pinned,
        multiprocessing_context=context,
        collate_fn=_identity,
        worker_init_fn=_begin_worker,
        generator=torch.Generator(),  # the default one would advance the random numbers of training
    )
    results = None
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*multi-threaded, use of fork", category=DeprecationWarning)
            results = iter(loader)
        for result in results:
            if isinstance(result, UserError):
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
    if workers is not None and not 0 <= workers <= FEW:
        raise UserError(f"{workers} workers are not possible; use 0 to {FEW}")
    if workers is not None:
        return workers
    return 0 if num_images <= FEW else default_workers()


def default_workers() -> int:
    """One for each core of this process's share."""
    return min(MOST_WORKERS, core_share())


def ranges(num: int, length: int, start: int = 0) -> list[range]:
    """start..num in consecutive ranges of this length."""
    return [range(begin, min(begin + length, num)) for begin in range(start, num, length)]


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


def _identity(batch: Any) -> Any:
    return batch
