"""Sets of images by index, and the worker processes that decode them.

Shapes: N images, V pieces of one, C channels, H height, W width, S side of a square.
"""

import os
import shutil
import signal
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from multiprocessing import parent_process
from multiprocessing.util import get_temp_dir
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from contune.console import Advance, plural
from contune.data.decode import RESIZES, Broken, BrokenImageError, Cut, Encoded, Ranges, decode_pieces, pieces_of, whole
from contune.device import core_share
from contune.errors import UserError

FEW = 256
"""Up to this many images are decoded by this process: starting workers would take longer."""
MOST_WORKERS = 32
"""Each worker holds a few batches, and machines with more cores are usually shared."""
HIDDEN = -1
"""What the Hugging Face hub writes for every image of a test split whose labels are secret."""
_TASK_BYTES = 2**22


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
            images=images[positions] if isinstance(images, Tensor) else [images[i] for i in positions],
            labels=None if self.labels is None else self.labels[positions],
            names=[self.names[i] for i in positions],
        )

    def as_seen_with(self, resize: str, bits: int, ranges: Ranges) -> "ImageSet":
        """The same images, decoded with these settings of an encoder."""
        return replace(self, cut=RESIZES[resize], bits=bits, ranges=ranges)

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
    traits: Traits | None = None
    """None if the literature has no standard values; they are measured then."""

    def parts(self) -> dict[str, ImageSet]:
        """The splits that there are, by name."""
        parts = {"train": self.train, "test": self.test, "val": self.val}
        return {name: images for name, images in parts.items() if images is not None}


@dataclass(frozen=True, kw_only=True, eq=False)
class Dataset(Traits):
    """A data set ready to train on."""

    name: str
    train: ImageSet
    test: ImageSet | None
    val: ImageSet | None
    class_names: tuple[str, ...]
    """Empty without labels."""
    skipped: tuple[Broken, ...] = ()
    """Broken images that were left out."""
    unseen: ImageSet | None = None
    """All images of classes that were held out as a whole; their labels continue those of `class_names`."""
    held_out: tuple[str, ...] = ()
    """Which of `test` and `val` were drawn from the training images."""


class Rows(NamedTuple):
    """What a folder or the tables in it list."""

    images: ImageSet
    labels: list[list[Any]]
    """Of each image, usually one; none if there is no label."""
    splits: list[str]
    """`train`, `test` or `val`; "" for images that belong to no split."""

    def to_splits(self, where: str) -> Splits:
        """Images and labels for training; several labels of an image make a label matrix."""
        is_matrix = any(len(labels) > 1 for labels in self.labels)
        found: dict[str, tuple[ImageSet, list[Any]]] = {}
        for split in sorted({*self.splits} - {""}):
            rows = [row for row, own in enumerate(self.splits) if own == split]
            labels, images = [self.labels[row] for row in rows], self.images.subset(rows)
            without = [name for name, own in zip(images.names, labels, strict=True) if not own]
            if 0 < len(without) < len(rows):
                many = plural(len(without), "image")
                raise UserError(f"{many} without a label in {where}, such as {without[0]!r}; add labels, or move them")
            found[split] = images, [own if is_matrix else own[0] for own in labels if own]
        if "train" not in found:
            raise UserError(f"{where} lists no training image; add some")
        return labeled(found, None, where)


def labeled(
    found: Mapping[str, tuple[ImageSet, list[Any] | None]], names: tuple[str, ...] | None, where: str
) -> Splits:
    """Splits with labels, which are positions in the class names; of lists of labels, a matrix (N, K) of 0 and 1.

    The sorted values of all splits are the classes. Integers are positions in the `names` of the metadata, which may
    have many more. A split in which every label is missing or −1 has no labels.
    """
    for split, (images, _) in found.items():
        if not len(images):
            raise UserError(f"the {split} split has no image ({where})")
    sets = {split: [v if isinstance(v, list) else [v] for v in column or ()] for split, (_, column) in found.items()}
    sets = {split: rows for split, rows in sets.items() if any(row not in ([None], [HIDDEN]) for row in rows)}
    is_matrix = any(isinstance(v, list) for split in sets for v in found[split][1] or ())
    different = {value for rows in sets.values() for row in rows for value in row}
    if not all(isinstance(value, int | str) for value in different):
        raise UserError(f"{where} must hold an integer or string in every row; choose another label column")
    position = {value: number for number, value in enumerate(sorted(different))}
    class_names = tuple(map(str, position))
    if names is not None and not any(isinstance(value, str) for value in different):
        outside = [value for value in position if not 0 <= value < len(names)]
        if outside:
            raise UserError(f"label {outside[0]} in {where} is outside its {len(names)} class names; drop those rows")
        class_names = tuple(names[value] for value in position)
    parts = {split: images for split, (images, _) in found.items()}
    for split, rows in sets.items():
        labels = torch.tensor([position[value] for row in rows for value in row])
        if is_matrix:
            row_of_label = torch.arange(len(rows)).repeat_interleave(torch.tensor(list(map(len, rows))))
            labels, numbers = torch.zeros(len(rows), len(position)), labels.long()
            labels[row_of_label, numbers] = 1
        parts[split] = replace(parts[split], labels=labels)
    return Splits(**parts, class_names=class_names)  # type: ignore[arg-type]  # all are ImageSets


def joined(parts: Sequence[ImageSet]) -> ImageSet:
    """The images of several sets of the same kind, one after the other."""
    pixels = [part.images for part in parts if isinstance(part.images, Tensor)]
    return replace(
        parts[0],
        images=torch.cat(pixels) if pixels else [source for part in parts for source in part.images],
        labels=torch.cat([part.labels for part in parts if part.labels is not None]),
        names=[name for part in parts for name in part.names],
    )


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
    if workers is None:
        return 0 if num_images <= FEW else default_workers()
    return workers


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
