"""A name or a path → a data set.

To add a named one: write a function that returns its `Splits`, and give it a line in `DATASETS`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from contune.data.cifar import cifar_splits
from contune.data.digits import digits_splits
from contune.data.fashion import fashion_splits
from contune.data.folder import folder_splits
from contune.data.imagenet100 import imagenet100_splits
from contune.data.images import Progress
from contune.data.imageset import Dataset, ImageSet, Splits
from contune.data.parquet import find_shards, parquet_splits
from contune.data.screen import without_broken
from contune.data.split import holdout
from contune.data.traits import measure
from contune.errors import UserError, unknown

BROKEN = ("stop", "skip")


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a person may say besides the name."""

    root: str | None = None
    classes: str | None = None
    label_column: str | None = None


DATASETS: dict[str, Callable[[Request], Splits]] = {
    "digits": lambda request: digits_splits(),
    "cifar10": lambda request: cifar_splits("cifar10", request.root, request.label_column),
    "cifar100": lambda request: cifar_splits("cifar100", request.root, request.label_column),
    "fmnist": lambda request: fashion_splits(request.root, request.label_column),
    "imagenet100": lambda request: imagenet100_splits(request.root, request.classes),
}


def load_dataset(
    name_or_path: str,
    *,
    root: str | None = None,
    classes: str | None = None,
    label_column: str | None = None,
    val_fraction: float = 0.0,
    test_fraction: float = 0.2,
    split_seed: int = 0,
    broken: str = "stop",
    progress: Progress | None = None,
) -> Dataset:
    """Open a named data set, an image folder, a parquet file or a folder of parquet shards.

    A name wins over a folder of the same name; write `./digits` for the folder. `root` says where a named
    set lies, `classes` is imagenet100's class list, `label_column` chooses among a parquet's columns.

    A set without a test split has `test_fraction` of its images held out, stratified; a set with a
    validation split and no test split tests on that one. `val_fraction` of what is left for training becomes
    the validation split where the set brings none of its own. With `broken="skip"` every image is decoded once, and
    those that cannot be are left out before anything is held out. `progress` follows the images that are decoded
    to measure the mean and deviation of a set nobody has described.
    """
    if broken not in BROKEN:
        raise unknown("way with broken images", broken, BROKEN)
    request = Request(root=root, classes=classes, label_column=label_column)
    try:
        splits = open_splits(name_or_path, request)
        splits, skipped = without_broken(splits) if broken == "skip" else (splits, ())
    except OSError as error:
        raise UserError(unreadable(error)) from error
    train, test, val = splits.train, splits.test, splits.val
    if test is None:
        test, val = val, None
    held_out = tuple(name for name, split in (("test", test), ("val", val)) if split is None)
    if test is None:
        train, test = _hold_out(train, test_fraction, split_seed)
    if val is None:
        train, val = _hold_out(train, val_fraction, split_seed)
    traits = splits.traits or measure(train, progress)
    return Dataset(
        name=name_or_path,
        train=train,
        test=test,
        val=val,
        class_names=splits.class_names,
        image_size=traits.image_size,
        channels=traits.channels,
        mean=traits.mean,
        std=traits.std,
        skipped=skipped,
        held_out=held_out,
        maybe_labels=splits.maybe_labels,
    )


def open_splits(name_or_path: str, request: Request) -> Splits:
    """What the files hold, before anything is held out."""
    if request.classes is not None and name_or_path != "imagenet100":
        raise UserError(f"a class list is for imagenet100, and the data set is {name_or_path!r}; leave it out")
    if name_or_path in DATASETS:
        return DATASETS[name_or_path](request)
    path = Path(name_or_path).expanduser()
    if not path.exists():
        raise _not_there(name_or_path, path)
    if request.root is not None:
        raise UserError(f"a root is for named data sets, and {name_or_path!r} is a path; leave it out")
    if find_shards(path):
        return parquet_splits(path, request.label_column)
    if path.is_file():
        raise UserError(f"{name_or_path!r} is neither a folder of images nor a .parquet file; unpack it first")
    if request.label_column is not None:
        raise UserError(f"a label column is for parquet, and {name_or_path!r} is a folder of images; leave it out")
    return folder_splits(path)


def _not_there(text: str, path: Path) -> UserError:
    """A single word may be meant as a name."""
    if path.name != text:
        return no_such_place(text)
    return UserError(f"{unknown('dataset', text, DATASETS)} (nor is there a file or folder at {text!r})")


def no_such_place(text: str) -> UserError:
    """Says from where it was looked for, where a text does not."""
    seen_from = "" if Path(text).expanduser().is_absolute() else f", seen from {Path.cwd()}"
    return UserError(f"there is no file or folder at {text!r}{seen_from}")


def unreadable(error: OSError) -> str:
    if error.filename is None:  # Arrow says it in a sentence of its own
        return f"cannot read the data: {error.strerror or error}"
    return f"cannot read {str(error.filename)!r}: {error.strerror}"


def _hold_out(split: ImageSet, fraction: float, seed: int) -> tuple[ImageSet, ImageSet | None]:
    keep, held = holdout(split.labels, len(split), fraction, seed)
    if not len(held):
        return split, None
    return split.subset(keep), split.subset(held)
