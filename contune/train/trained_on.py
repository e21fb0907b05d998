"""trained_on.json: which images a run learns from, so that it goes on with no others and none is taken for unseen."""

import hashlib
import json
import os
from pathlib import Path
from typing import NamedTuple

from contune.config import Config, DataConfig
from contune.data.imageset import ImageSet
from contune.errors import UserError
from contune.files import write_whole
from contune.run import RunFolder
from contune.train.setup import Setup

FILE = "trained_on.json"


class TrainedOn(NamedTuple):
    num: int
    fingerprint: str
    """Of their names and labels, wherever their folder lies."""


def describe(images: ImageSet) -> TrainedOn:
    names = list(images.names)
    folder = len(os.path.commonpath((min(names), max(names))))
    digest = hashlib.sha256("\n".join(name[folder:] for name in names).encode("utf-8", "surrogateescape"))
    if images.labels is not None:
        digest.update(images.labels.numpy().tobytes())
    return TrainedOn(len(names), digest.hexdigest())


def write(folder: Path, images: ImageSet) -> None:
    write_whole(folder / FILE, json.dumps(describe(images)._asdict(), indent=2) + "\n")


def check_same(folder: Path, setup: Setup) -> None:
    """Before a run goes on."""
    then, now = _read(folder), describe(setup.dataset.train)
    if then is not None and then != now:
        raise UserError(
            f"{setup.dataset.name} has changed since the run in {folder} was started{_numbers(then, now)}; start "
            "another one with --out, or put the images back"
        )


def check_unseen(run: RunFolder, setup: Setup) -> None:
    """Before a run is measured: that what is held out now is not what it was trained on.

    A fraction is drawn from all images, so with one more of them, or another fraction, it is of others.
    """
    then = _read(run.path)
    if (
        then is None
        or setup.config.eval.split not in setup.dataset.held_out
        or not _is_same(run.config(), setup.config)
    ):
        return
    now = describe(setup.dataset.train)
    if then != now:
        raise UserError(
            f"{setup.dataset.name} is not split as it was when {run.path} was trained{_numbers(then, now)}, so images "
            f"that would be measured now may have been trained on; give others with data.path, or train again"
        )


def _is_same(then: Config, now: Config) -> bool:
    """Whether both take their images from one place."""
    return _place(then.data) == _place(now.data)


def _place(data: DataConfig) -> str:
    return str(Path(data.path).expanduser().resolve()) if data.name == "images" and data.path else data.name


def _numbers(then: TrainedOn, now: TrainedOn) -> str:
    return f" ({then.num:,} images to train on then, {now.num:,} now)" if then.num != now.num else ""


def _read(folder: Path) -> TrainedOn | None:
    """None for runs of before there was this file, and where it cannot be read."""
    try:
        return TrainedOn(**json.loads((folder / FILE).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
