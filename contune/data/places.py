"""Where a named data set is looked for. Nothing is ever downloaded."""

import os
from pathlib import Path

from contune.data.imageset import Splits
from contune.data.parquet import find_shards, parquet_splits
from contune.errors import UserError

VARIABLE = "CONTUNE_DATA"


def search_places(root: str | None) -> list[Path]:
    """The given root and nothing else, or the usual places in their order."""
    if root is not None:
        return [Path(root).expanduser()]
    usual = [os.environ.get(VARIABLE), "data", "~/.cache/contune"]
    return [Path(place).expanduser() for place in usual if place]


def named_parquet(name: str, root: str | None, label_column: str | None, num_classes: int) -> Splits | None:
    """Shards of this set in `place/name`, or right at the root that a person gave; None without any."""
    candidates = [place / name for place in search_places(root)]
    if root is not None:
        candidates.append(Path(root).expanduser())
    for path in candidates:
        if path.exists() and find_shards(path):
            splits = parquet_splits(path, label_column)
            if label_column is None and len(splits.class_names) != num_classes:
                raise UserError(
                    f"{str(path)!r} has {len(splits.class_names)} classes and {name} has {num_classes}; "
                    "give its path as the data set instead of the name"
                )
            return splits
    return None


def missing(name: str, places: list[Path], folder: str, *, source: str, torchvision: str) -> UserError:
    """The sentence for a named set that is not on this disk."""
    looked = " or ".join(str(place / folder) for place in places)
    fetch = f"torchvision.datasets.{torchvision}({str(places[0])!r}, download=True)"
    return UserError(
        f"{name} is not on this disk (no {looked}) and is never downloaded for you; get it from {source}, "
        f"or run {fetch}, or put its parquet shards from the Hugging Face hub in {places[0] / name}; "
        "data.path names another folder"
    )
