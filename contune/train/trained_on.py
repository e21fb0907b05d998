"""trained_on.npz: which images a run learnt from and was measured on, so that no other is taken for one of these.

An image is known by the name and size of its file and by its class folder, wherever that lies; in parquet by its row.
What is inside of it is not looked at, for that would be to read every file once more.
"""

import hashlib
import os
from pathlib import Path
from typing import NamedTuple
from zipfile import BadZipFile

import numpy as np

from contune.config import DataConfig
from contune.console import say
from contune.data.imageset import Dataset, ImageSet
from contune.errors import UserError
from contune.files import whole_file
from contune.run import RunFolder
from contune.train.setup import Setup

FILE = "trained_on.npz"


class TrainedOn(NamedTuple):
    train: np.ndarray
    """A key for each image, in order, uint64."""
    measured: np.ndarray
    total: int
    """Of all splits: in parquet rows shift when it changes."""


def describe(setup: Setup) -> TrainedOn:
    measured = setup.eval_set()
    return TrainedOn(
        _keys(setup.dataset.train),
        np.empty(0, np.uint64) if measured is None else _keys(measured),
        _total(setup.dataset),
    )


def write(folder: Path, setup: Setup) -> None:
    with whole_file(folder / FILE) as part, part.open("wb") as file:
        np.savez(file, **describe(setup)._asdict())


def check_same(folder: Path, setup: Setup) -> None:
    """Before a run goes on: that it does so with the same images."""
    then = _read(folder)
    if then is None:
        return
    now = _keys(setup.dataset.train)
    if not np.array_equal(then.train, now):
        raise UserError(
            f"{setup.dataset.name} has changed since the run in {folder} was started ({len(then.train):,} images to "
            f"train on then, {len(now):,} now); start another one with --out, or put the images back"
        )


def check_unseen(run: RunFolder, setup: Setup) -> None:
    """Before a run is measured: that what it would be measured on is not what it was trained on.

    A fraction is drawn from all images, so with one more of them, or another fraction, it is of others. At another
    place files that are alike in name and size may still be others, so there it is only said.
    """
    then, measured = _read(run.path), setup.eval_set()
    elsewhere = _place(run.config().data) != _place(setup.config.data)
    if then is None or measured is None or (elsewhere and _is_numbered(measured)):
        return
    name, way = setup.dataset.name, "give others with data.path, or train again"
    if _is_numbered(measured) and then.total != _total(setup.dataset):
        raise UserError(
            f"{name} has another number of rows than when {run.path} was trained ({then.total:,} then), so which of "
            f"them it has not seen cannot be told; {way}"
        )
    told_apart = np.setdiff1d(then.train, then.measured)  # of two files alike in name and size one may be in each
    seen = int(np.isin(_keys(measured), told_apart).sum())
    if seen and elsewhere:
        say(
            f"{seen:,} of the {len(measured):,} images of {name} that are measured have the name, class and size of "
            f"images that {run.path} was trained on; if they are the same, the accuracy is not one on unseen images"
        )
    elif seen:
        raise UserError(
            f"{seen:,} of the {len(measured):,} images of {name} that would be measured are among those that "
            f"{run.path} was trained on; {way}"
        )


def check_measured(run: RunFolder, setup: Setup) -> None:
    """Before more is shown of what a run was measured on: that it is still that."""
    then, measured = _read(run.path), setup.eval_set()
    if then is not None and measured is not None and not np.array_equal(then.measured, _keys(measured)):
        raise UserError(
            f"the images of {setup.dataset.name} that {run.path} was measured on have changed since, and what is shown "
            "of them would not belong to its numbers; put them back"
        )


def _keys(images: ImageSet) -> np.ndarray:
    known = os.path.basename if _is_numbered(images) else _known_by
    return np.fromiter((_key(known(name)) for name in images.names), np.uint64, len(images))


def _known_by(path: str) -> str:
    folder, file = os.path.split(path)
    return f"{os.path.basename(folder)}/{file}/{os.path.getsize(path)}"


def _key(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=8).digest(), "little")


def _is_numbered(images: ImageSet) -> bool:
    """As in parquet, and not files by their names."""
    return not os.path.isfile(images.names[0])


def _total(dataset: Dataset) -> int:
    return sum(len(split) for split in (dataset.train, dataset.test, dataset.val) if split is not None)


def _place(data: DataConfig) -> str:
    return str(Path(data.path).expanduser().resolve()) if data.name == "images" and data.path else data.name


def _read(folder: Path) -> TrainedOn | None:
    """None for runs of before there was this file, and where it cannot be read."""
    try:
        with (folder / FILE).open("rb") as file, np.load(file, allow_pickle=False) as kept:
            return TrainedOn(kept["train"], kept["measured"], int(kept["total"]))
    except (OSError, ValueError, KeyError, EOFError, BadZipFile):
        return None
