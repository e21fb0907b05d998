"""CIFAR-10 and CIFAR-100: the official archives as torchvision unpacks them, or parquet.

The official files are Python pickles, and a pickle can run any code. This reader builds only what those files contain:
dicts, lists, strings, integers and arrays of bytes. A file from an unknown source is safe to open.
"""

import io
import pickle
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from contune.data.folder import missing, search_places
from contune.data.images import ImageSet, Splits, TensorImages, Traits
from contune.data.parquet import named_parquet
from contune.errors import UserError

SIZE = 32
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Edition:
    """One of the two data sets, as its archive has it."""

    folder: str
    train_files: tuple[str, ...]
    test_file: str
    names_file: str
    labels_key: str
    names_key: str
    traits: Traits


EDITIONS = {
    "cifar10": Edition(
        folder="cifar-10-batches-py",
        train_files=tuple(f"data_batch_{number}" for number in range(1, 6)),
        test_file="test_batch",
        names_file="batches.meta",
        labels_key="labels",
        names_key="label_names",
        traits=Traits(image_size=SIZE, channels=3, mean=(0.4914, 0.4822, 0.4465), std=(0.2023, 0.1994, 0.2010)),
    ),
    "cifar100": Edition(
        folder="cifar-100-python",
        train_files=("train",),
        test_file="test",
        names_file="meta",
        labels_key="fine_labels",
        names_key="fine_label_names",
        traits=Traits(image_size=SIZE, channels=3, mean=(0.5071, 0.4867, 0.4408), std=(0.2675, 0.2565, 0.2761)),
    ),
}


def cifar_splits(name: str, root: str | None, label_column: str | None) -> Splits:
    edition = EDITIONS[name]
    places = search_places(root)
    for folder in (folder for place in places for folder in (place / edition.folder, place)):
        if (folder / edition.test_file).is_file():
            names = _read(folder / edition.names_file, lambda content: tuple(map(str, content[edition.names_key])))
            return Splits(
                train=_read_batches([folder / file for file in edition.train_files], edition),
                test=_read_batches([folder / edition.test_file], edition),
                class_names=names,
                traits=edition.traits,
            )
    shards = named_parquet(name, root, label_column, int(name.removeprefix("cifar")))
    if shards is None:
        source = "https://www.cs.toronto.edu/~kriz/cifar.html"
        raise missing(name, places, edition.folder, source=source, torchvision=name.upper())
    return replace(shards, traits=edition.traits, maybe_labels=())


def _read_batches(files: list[Path], edition: Edition) -> ImageSet:
    def images_and_labels(content: Any) -> tuple[np.ndarray, Tensor]:
        labels = torch.tensor(content[edition.labels_key], dtype=torch.int64)
        return content["data"].pixels.reshape(len(labels), 3, SIZE, SIZE), labels

    parts = [_read(file, images_and_labels) for file in files]
    return ImageSet(
        images=TensorImages(torch.from_numpy(np.concatenate([images for images, _ in parts]))),
        labels=torch.cat([labels for _, labels in parts]),
        names=[f"{file}#{row}" for file, (_, labels) in zip(files, parts, strict=True) for row in range(len(labels))],
    )


def _read(file: Path, pick: Callable[[Any], T]) -> T:
    """What `pick` takes out of a pickle."""
    if not file.is_file():
        raise UserError(f"{str(file)!r} is missing; unpack the CIFAR archive again")
    try:
        return pick(_PlainUnpickler(io.BytesIO(file.read_bytes()), encoding="latin1").load())
    except Exception as error:  # a damaged pickle raises nearly anything
        raise UserError(f"{str(file)!r} is not a CIFAR file ({error}); unpack the archive again") from error


class _PlainUnpickler(pickle.Unpickler):
    """Replaces the four names that a pickled array of bytes refers to. Refuses all others."""

    def find_class(self, module: str, name: str) -> Any:
        known = {"_reconstruct": _Array, "ndarray": None, "dtype": _ByteType, "encode": _encode}
        if module.split(".")[0] not in ("numpy", "_codecs") or name not in known:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return known[name]


class _ByteType:
    """Stands for numpy's dtype of bytes."""

    def __init__(self, name: str, *flags: Any) -> None:
        if name != "u1":
            raise pickle.UnpicklingError(f"it holds an array of type {name}")

    def __setstate__(self, state: Any) -> None:
        """Byte order and the like mean nothing for bytes."""


class _Array:
    """Stands for a numpy array of bytes."""

    def __init__(self, *arguments: Any) -> None:
        self.pixels = np.empty(0, np.uint8)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, kind, is_fortran, content = state
        if not isinstance(kind, _ByteType) or is_fortran:
            raise pickle.UnpicklingError("it holds an array that is not of bytes")
        content = content.encode("latin1") if isinstance(content, str) else content  # Python 2 wrote the official files
        self.pixels = np.frombuffer(bytearray(content), np.uint8).reshape(shape)


def _encode(text: str, encoding: str) -> bytes:
    """How Python 3 pickles bytes."""
    return text.encode("latin1")
