"""Images that are in Python already: arrays, tensors, lists, torch datasets and Hugging Face datasets.

Shapes: N images, C channels, H height, W width.
"""

import hashlib
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from contune.config import MOST_CHANNELS
from contune.console import progress
from contune.data.decode import BrokenImageError, Encoded, Stored
from contune.data.folder import SPLIT_OF, folder_splits, labeled, path_as_text
from contune.data.images import ImageSet, Splits, distinct
from contune.data.parquet import image_column, label_of, names_in_metadata
from contune.errors import UserError
from contune.files import expanded

MEMORY = "memory"
"""`data.name` of a run on such images; its `data.path` is their digest."""
UNNAMED = "images#"
"""What the names of images without a file begin with."""


def open_memory(data: Any, label_column: str | None = None) -> Splits:
    """Images from Python, with labels if they have any.

    data: one of these, or a mapping of `train`, `test` and `validation` to them, such as a `DatasetDict`:
        pixels: uint8, or floats from 0 to 1, of shape (N, H, W), (N, H, W, C) or (N, C, H, W)
        a list of paths, PIL images or arrays, or the path of a folder of images
        a pair of images and labels: (X, y); y with a list of labels per image, or an (N, K) array of 0 and 1, is for
            several labels per image
        a torch `Dataset` of images or of pairs (image, label)
        a Hugging Face `Dataset` with a column of images and perhaps one of labels; `label_column` names an unusual one
    """
    parts: dict[str, Any] = {"train": data}
    if isinstance(data, Mapping):  # other names are ignored, as in a folder of parquet files
        parts = {SPLIT_OF[str(name)]: part for name, part in data.items() if str(name) in SPLIT_OF}
    if "train" not in parts:
        raise UserError(f"there is no 'train' among the splits {', '.join(map(str, data))}; pass one of them alone")
    read = {split: _read(part, label_column) for split, part in parts.items()}
    return labeled({split: each[:2] for split, each in read.items()}, read["train"][2], "the labels")


def digest_of(splits: Splits) -> str:
    """Eight characters that differ for other images: from all labels and pixels, or 32 pictures that need decoding."""
    digest = hashlib.sha256(repr(splits.class_names).encode())
    for images in splits.parts().values():
        digest.update(str(len(images)).encode())
        if images.labels is not None:
            digest.update(images.labels.numpy().tobytes())
        if isinstance(images.images, Tensor):
            digest.update(f"{tuple(images.images.shape)}".encode())
            digest.update(np.ascontiguousarray(images.images.numpy()).data)
            continue
        for index in np.linspace(0, len(images) - 1, min(len(images), 32)).astype(int):
            with suppress(BrokenImageError):  # found again when it is loaded
                digest.update(images.decode(index, None, 0).tobytes())
    return digest.hexdigest()[:8]


def listed(items: Sequence[Any]) -> ImageSet:
    """Paths, PIL images and arrays. PIL images are loaded now: workers would share their files and where they read."""
    sources: list[Encoded] = []
    names: list[str] = []
    for number, item in enumerate(items):
        name = f"{UNNAMED}{number}"
        if isinstance(item, Image.Image):
            with suppress(Exception):  # Pillow raises nearly anything for a damaged picture, and again in `decode`
                item.load()
        elif isinstance(item, str | Path) and os.path.lexists(path := os.path.expanduser(str(item))):
            item, name = path, path_as_text(path)
        elif not isinstance(item, np.ndarray):
            raise UserError(f"item {number}, {item!r}, is neither a PIL image, an array nor the path of a file")
        sources.append(item)
        names.append(name)
    return ImageSet(images=sources, names=names)


def to_pixels(images: Any) -> Tensor:
    """uint8 (N, C, H, W). Channels: the axis of 1 or 3, or the shortest; if equal, the last of arrays."""
    if isinstance(images, Tensor):
        x = (images.float() if images.is_floating_point() else images).detach().cpu().numpy()
    else:
        x = np.asarray(images)
    shape, dtype = x.shape, x.dtype
    if x.ndim == 3 and shape[2] not in (1, 3):  # else it is probably one image
        x = x[:, None]
    elif x.ndim == 4:
        axes = (1, 3) if isinstance(images, Tensor) else (3, 1)
        few = sorted((axis for axis in axes if shape[axis] <= MOST_CHANNELS), key=lambda axis: shape[axis])
        few = [axis for axis in axes if shape[axis] in (1, 3)] + few
        x = x.transpose(0, 3, 1, 2) if few[:1] == [3] else x
    is_float = np.issubdtype(dtype, np.floating)
    if x.ndim != 4 or x.shape[1] > MOST_CHANNELS or 0 in shape or not (is_float or dtype == np.uint8):
        raise UserError(
            f"images must be a path, a list of paths or PIL images, a dataset, or pixels (N, H, W), (N, H, W, C) or "
            f"(N, C, H, W) of uint8 or of floats from 0 to 1; got {type(images).__name__} of shape {shape} and {dtype}"
        )
    if is_float:
        if not 0 <= x.min() <= x.max() <= 1:
            raise UserError(f"images of {dtype} must be between 0 and 1; contune does the normalization")
        x = (x * 255).round().astype(np.uint8)
    return torch.from_numpy(np.ascontiguousarray(x))


_Part = tuple[ImageSet, list[Any] | None, tuple[str, ...] | None]


def _read(part: Any, label_column: str | None) -> _Part:
    """The images, a label for each, and the names that integer labels stand for."""
    if isinstance(part, tuple) and len(part) == 2:
        images, labels = _read(part[0], label_column)[0], _labels(part[1])
        if len(labels) != len(images):
            raise UserError(f"{len(images)} images and {len(labels)} labels are inconsistent; pass one for each")
        return images, labels, None
    if hasattr(part, "column_names") and hasattr(part, "with_format"):
        return _read_table(part, label_column)
    if isinstance(part, torch.utils.data.Dataset):
        return _read_items(part)
    if isinstance(part, str | Path):
        folder = expanded(part)
        splits = folder_splits(folder) if folder.is_dir() else None
        if splits is None or splits.test is not None or splits.val is not None:
            raise UserError(f"{str(part)!r} is not a folder with a single split of images, such as a folder 'train'")
        named = splits.train.label_names(splits.class_names)
        return splits.train, [name for names in named for name in names] or None, None
    if isinstance(part, Sequence) and len(part) and isinstance(part[0], str | Path | Image.Image | np.ndarray):
        return listed(part), None, None
    pixels_NCHW = to_pixels(part)
    return ImageSet(images=pixels_NCHW, names=_numbered(len(pixels_NCHW))), None, None


def _labels(given: Any) -> list[Any]:
    """A label for each image; a list for each if given as lists, or as rows of 0 and 1 with a column per class."""
    rows = [np.asarray(list(row) if isinstance(row, tuple | set) else row).tolist() for row in given]
    if not any(isinstance(row, list) for row in rows):
        return rows
    if len({*map(np.size, rows)}) == 1 < np.size(rows[0]) and np.isin(rows, (0, 1)).all():
        rows = [np.flatnonzero(row).tolist() for row in rows]
    elif hasattr(given, "ndim") or not any(rows):
        raise UserError("labels are inconsistent; pass one for each image, lists of them, or rows of 0 and 1")
    return rows


def _read_table(table: Any, label_column: str | None) -> _Part:
    """A Hugging Face dataset, which is not imported here. Its rows are the same as those of parquet."""
    schema = table.features.arrow_schema
    column, label = image_column(schema, "the dataset"), label_of(schema, label_column, "the dataset")
    rows = table.select_columns([column]).with_format("arrow")
    images = ImageSet(images=[partial(_cell, rows, row) for row in range(len(table))], names=_numbered(len(table)))
    if label is None:
        return images, None, None
    values = table.select_columns([label]).with_format("arrow")[:][label].to_pylist()
    return images, values, names_in_metadata(schema, label)


def _cell(rows: Any, row: int) -> Stored:
    value = rows[row].column(0)[0].as_py()
    content = (value["bytes"] or value["path"]) if isinstance(value, dict) else value
    return content if isinstance(content, str) else bytes(content or b"")


def _read_items(dataset: Any) -> _Part:
    """A torch dataset. `targets` and `classes`, as torchvision names them, save a pass over all images."""
    num = len(dataset)
    images = ImageSet(images=[partial(_item, dataset, index) for index in range(num)], names=_numbered(num))
    if not num or not isinstance(dataset[0], tuple | list):
        return images, None, None
    known = getattr(dataset, "targets", None) if getattr(dataset, "target_transform", None) is None else None
    values: list[Any] = []
    if known is not None and len(known) == num:
        values = np.asarray(known).tolist()
    else:
        with progress("labels", num, unit="image") as advance:
            for index in range(num):
                label = dataset[index][1]
                values.append(label.item() if hasattr(label, "item") else label)
                advance(index + 1, "")
    classes = getattr(dataset, "classes", None)
    return images, values, distinct(map(str, classes)) if isinstance(classes, list | tuple) else None


def _item(dataset: Any, index: int) -> Stored:
    item = dataset[index]
    image = item[0] if isinstance(item, tuple | list) else item
    if isinstance(image, Image.Image | str):
        return image
    if isinstance(image, dict):
        raise UserError("an item of the dataset is a dict; return an image, or a pair of image and label")
    return to_pixels(image[None])[0].permute(1, 2, 0).numpy()


def _numbered(num: int) -> list[str]:
    return [f"{UNNAMED}{number}" for number in range(num)]
