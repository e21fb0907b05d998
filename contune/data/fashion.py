"""Fashion-MNIST from its idx files: torchvision's folder, Debian's package, or parquet."""

import gzip
import zlib
from pathlib import Path

import numpy as np
import torch

from contune.data.images import TensorImages
from contune.data.imageset import ImageSet, Splits, Traits
from contune.data.places import missing, named_parquet, search_places
from contune.data.sequences import NumberedNames
from contune.errors import UserError

DEBIAN_FOLDER = Path("/usr/share/datasets/fashion-mnist")
FOLDERS = ("FashionMNIST/raw", "raw", "fashion-mnist", "fmnist", ".")
CLASS_NAMES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
TRAITS = Traits(image_size=28, channels=1, mean=(0.5,), std=(0.5,))

_UNSIGNED_BYTE = 8


def fashion_splits(root: str | None, label_column: str | None) -> Splits:
    places = search_places(root)
    folders = [place / folder for place in places for folder in FOLDERS]
    if root is None:
        folders.append(DEBIAN_FOLDER)
    for folder in folders:
        if _idx_file(folder, "train-images-idx3-ubyte") is not None:
            train, test = (_read_split(folder, prefix) for prefix in ("train", "t10k"))
            return Splits(train=train, test=test, class_names=CLASS_NAMES, traits=TRAITS)
    shards = named_parquet("fmnist", root, label_column, len(CLASS_NAMES))
    if shards is None:
        raise missing(
            "fmnist",
            places,
            FOLDERS[0],
            source="https://github.com/zalandoresearch/fashion-mnist or Debian's dataset-fashion-mnist",
            torchvision="FashionMNIST",
        )
    return Splits(train=shards.train, test=shards.test, val=shards.val, class_names=shards.class_names, traits=TRAITS)


def read_idx(path: Path) -> np.ndarray:
    """An idx file of bytes, plain or gzipped: two zeros, type, number of axes, their lengths, data."""
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UserError(f"{str(path)!r} is not a whole gzip file ({error}); fetch it again") from error
    data_start = 4 + 4 * content[3] if content[:3] == bytes([0, 0, _UNSIGNED_BYTE]) and content[3:] else 4
    if data_start == 4 or len(content) < data_start:
        raise UserError(f"{str(path)!r} is not an idx file of bytes; fetch it again")
    shape = np.frombuffer(content[4:data_start], dtype=">u4").astype(int).tolist()
    data = np.frombuffer(content, dtype=np.uint8, offset=data_start)
    if data.size != np.prod(shape):
        raise UserError(f"{str(path)!r} announces {shape} bytes and holds {data.size}; fetch it again")
    return data.reshape(shape).copy()


def _read_split(folder: Path, prefix: str) -> ImageSet:
    images_file = _idx_file(folder, f"{prefix}-images-idx3-ubyte")
    labels_file = _idx_file(folder, f"{prefix}-labels-idx1-ubyte")
    if images_file is None or labels_file is None:
        raise UserError(f"{str(folder)!r} lacks {prefix}-images or {prefix}-labels; fetch all four files")
    x_NHW, labels = read_idx(images_file), read_idx(labels_file)
    if x_NHW.ndim != 3 or labels.shape != x_NHW.shape[:1]:
        raise UserError(
            f"{str(images_file)!r} and its labels have shapes {x_NHW.shape} and {labels.shape}, which do not "
            "belong together; fetch all four files again"
        )
    return ImageSet(
        images=TensorImages(torch.from_numpy(x_NHW).unsqueeze(1)),
        labels=torch.from_numpy(labels).long(),
        names=NumberedNames([(str(images_file), len(labels))]),
    )


def _idx_file(folder: Path, stem: str) -> Path | None:
    return next((path for path in (folder / stem, folder / f"{stem}.gz") if path.is_file()), None)
