"""CIFAR-10 and CIFAR-100 as their own archives unpack, which is where torchvision keeps them, or as parquet.

The files are Python pickles. They are read here and not by torchvision because a pickle can run any code:
this reader knows numpy arrays and nothing else, so a file from anywhere is safe to open.
"""

import codecs
import io
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from contune.data.images import TensorImages
from contune.data.imageset import ImageSet, Splits, Traits
from contune.data.places import missing, named_parquet, search_places
from contune.data.sequences import NumberedNames
from contune.errors import UserError

SIZE = 32


@dataclass(frozen=True, kw_only=True)
class Edition:
    """One of the two sets, as its archive has it."""

    folder: str
    train_files: tuple[str, ...]
    test_file: str
    names_file: str
    labels_key: str
    names_key: str
    num_classes: int
    torchvision: str
    traits: Traits


EDITIONS = {
    "cifar10": Edition(
        folder="cifar-10-batches-py",
        train_files=tuple(f"data_batch_{number}" for number in range(1, 6)),
        test_file="test_batch",
        names_file="batches.meta",
        labels_key="labels",
        names_key="label_names",
        num_classes=10,
        torchvision="CIFAR10",
        traits=Traits(image_size=SIZE, channels=3, mean=(0.4914, 0.4822, 0.4465), std=(0.2023, 0.1994, 0.2010)),
    ),
    "cifar100": Edition(
        folder="cifar-100-python",
        train_files=("train",),
        test_file="test",
        names_file="meta",
        labels_key="fine_labels",
        names_key="fine_label_names",
        num_classes=100,
        torchvision="CIFAR100",
        traits=Traits(image_size=SIZE, channels=3, mean=(0.5071, 0.4867, 0.4408), std=(0.2675, 0.2565, 0.2761)),
    ),
}


def cifar_splits(name: str, root: str | None, label_column: str | None) -> Splits:
    edition = EDITIONS[name]
    places = search_places(root)
    for place in places:
        for folder in (place / edition.folder, place):
            if (folder / edition.test_file).is_file():
                return _read_edition(folder, edition)
    shards = named_parquet(name, root, label_column, edition.num_classes)
    if shards is None:
        raise missing(
            name,
            places,
            edition.folder,
            source="https://www.cs.toronto.edu/~kriz/cifar.html",
            torchvision=edition.torchvision,
        )
    return Splits(
        train=shards.train,
        test=shards.test,
        val=shards.val,
        class_names=shards.class_names,
        traits=edition.traits,
    )


def _read_edition(folder: Path, edition: Edition) -> Splits:
    names = _field(_unpickle(folder / edition.names_file), edition.names_key, folder / edition.names_file)
    return Splits(
        train=_read_batches([folder / file for file in edition.train_files], edition),
        test=_read_batches([folder / edition.test_file], edition),
        class_names=tuple(names),
        traits=edition.traits,
    )


def _read_batches(files: list[Path], edition: Edition) -> ImageSet:
    rows, labels = [], []
    for file in files:
        batch = _unpickle(file)
        data = np.asarray(_field(batch, "data", file), dtype=np.uint8)
        rows.append(data.reshape(len(data), 3, SIZE, SIZE))
        labels += list(_field(batch, edition.labels_key, file))
    x_NCHW = torch.from_numpy(np.concatenate(rows))
    return ImageSet(
        images=TensorImages(x_NCHW),
        labels=torch.tensor(labels, dtype=torch.int64),
        names=NumberedNames((str(file), len(part)) for file, part in zip(files, rows, strict=True)),
    )


class _ArraysOnly(pickle.Unpickler):
    """Builds numpy arrays and refuses every other global."""

    def find_class(self, module: str, name: str) -> Any:
        reconstruct = np.empty(0).__reduce__()[0]  # the function moved between numpy 1 and 2
        allowed = {
            "_reconstruct": reconstruct,
            "ndarray": np.ndarray,
            "dtype": np.dtype,
            "encode": codecs.encode,
        }
        if module.split(".")[0] not in ("numpy", "_codecs") or name not in allowed:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return allowed[name]


def _unpickle(file: Path) -> dict[str, Any]:
    if not file.is_file():
        raise UserError(f"{str(file)!r} is missing from its folder; unpack the archive again")
    try:
        content = _ArraysOnly(io.BytesIO(file.read_bytes()), encoding="latin1").load()
    except Exception as error:  # a damaged pickle raises nearly anything
        raise UserError(f"{str(file)!r} is not a CIFAR file ({error}); unpack the archive again") from error
    return content if isinstance(content, dict) else {}


def _field(content: dict[str, Any], key: str, file: Path) -> Any:
    if key not in content:
        raise UserError(f"{str(file)!r} is not a CIFAR file (it has no {key!r}); unpack the archive again")
    return content[key]
