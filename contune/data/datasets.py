"""Open a data set by name or path, and hold images out of it.

To add a named data set, write a function that returns its `Splits` and add a line to `DATASETS`.
Shapes: N images, K classes, C channels, H height, W width.
"""

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from contune import distributed
from contune.console import progress
from contune.data.decode import Broken, BrokenImageError, Ranges, peek
from contune.data.folder import TABLE_NAME, find_tables, folder_splits, table_splits, visible_files, visible_folders
from contune.data.images import Dataset, ImageSet, Splits, Traits
from contune.data.parquet import find_shards, parquet_splits
from contune.data.sampler import mixed_generator
from contune.errors import UserError, unknown
from contune.files import expanded

NUM_SAMPLED, SAMPLE_SIZE = 2000, 64

DATASETS: dict[str, Callable[[str | None, str | None, str | None], Splits]] = {
    "digits": lambda root, classes, label_column: digits_splits(),
    "cifar10": lambda root, classes, label_column: torchvision_splits("cifar10", root, label_column),
    "cifar100": lambda root, classes, label_column: torchvision_splits("cifar100", root, label_column),
    "fmnist": lambda root, classes, label_column: torchvision_splits("fmnist", root, label_column),
    "imagenet100": lambda root, classes, label_column: imagenet100_splits(root, classes),
}


def load_dataset(
    source: str | Splits,
    *,
    root: str | None = None,
    classes: str | None = None,
    label_column: str | None = None,
    val_fraction: float = 0.0,
    test_fraction: float = 0.2,
    unseen_classes: float = 0.0,
    broken: str = "stop",
    full_range: bool = False,
    channels: int | None = None,
    imbalance: float = 1.0,
) -> Dataset:
    """Open a named data set, an image folder, a CSV file that lists images, parquet shards, or splits in memory.

    A name takes precedence over a folder of the same name; write `./digits` for the folder. `root` is where a named
    data set lies, `classes` is imagenet100's class list, `label_column` chooses a column of parquet or CSV.

    Without a test split, the validation split becomes the test split; without either, `test_fraction` of the images is
    held out, stratified. `val_fraction` of the remaining training images becomes the validation split if there is none.
    `unseen_classes` is the share of classes, the last ones, of which no image is in any split; `unseen` has them all.
    With `broken="skip"` every image is decoded once, and broken images are removed before anything is held out.
    The values of 16-bit files are scaled by the bits that they use, or with `full_range` by 16; those of floats and
    other arrays by their range, or with `full_range` by that of their type. `channels` is how many to read from files
    that may hold more. [default: their own] `imbalance` makes the training images long-tailed, see `long_tail`.
    """
    splits = source if isinstance(source, Splits) else open_splits(source, label_column, root, classes)
    splits, skipped = _without_broken(splits, channels or 0) if broken == "skip" else (splits, ())
    splits, unseen = _without_classes(splits, unseen_classes) if unseen_classes else (splits, None)
    train, held_out = splits.train, list[str]()
    sets = {"test": splits.test, "val": splits.val} if splits.test is not None else {"test": splits.val, "val": None}
    for part, fraction in (("test", test_fraction), ("val", val_fraction)):
        if sets[part] is None:
            held_out.append(part)
            keep, held = holdout(train.labels, len(train), fraction, seed=0)
            if len(held):
                train, sets[part] = train.subset(keep), train.subset(held)
    if imbalance > 1:
        if train.labels is None or train.labels.dim() == 2:
            raise UserError("data.imbalance needs one label per image, which this data lacks; set it to 1")
        train = train.subset(long_tail(train.labels, imbalance))
    traits = splits.traits or measure(train, full_range, channels)
    sets |= {"train": train, "unseen": unseen}
    for part, images in sets.items():
        sets[part] = images and replace(images, bits=traits.bits, ranges=traits.ranges)
    return Dataset(
        name="this data" if isinstance(source, Splits) else source,
        class_names=splits.class_names,
        **vars(traits),
        **sets,  # type: ignore[arg-type]  # train is never None
        skipped=skipped,
        held_out=tuple(held_out),
    )


def open_splits(
    name_or_path: str, label_column: str | None = None, root: str | None = None, classes: str | None = None
) -> Splits:
    """What the files hold, before anything is held out."""
    if classes is not None and name_or_path != "imagenet100":
        raise UserError(f"a class list is only for imagenet100, not for {name_or_path!r}; remove it")
    try:
        if name_or_path in DATASETS:
            return DATASETS[name_or_path](root, classes, label_column)
        path = expanded(name_or_path)
        if not path.exists():
            if path.name != name_or_path:
                raise no_such_place(name_or_path)
            raise UserError(
                f"there is no file or folder {name_or_path!r}, and {unknown('dataset', name_or_path, DATASETS)}"
            )
        if tables := find_tables(path):
            return table_splits(tables, label_column)
        if find_shards(path):
            return parquet_splits(path, label_column)
        if path.is_file():
            raise UserError(f"{name_or_path!r} is neither a folder of images nor .parquet or .csv; unpack it first")
        if label_column is not None:
            raise UserError(f"a label column is only for parquet and CSV; {name_or_path!r} has no {TABLE_NAME}")
        return folder_splits(path)
    except OSError as error:
        raise UserError(f"cannot read {str(error.filename or name_or_path)!r}: {error.strerror or error}") from error


def no_such_place(text: str) -> UserError:
    seen_from = "" if expanded(text).is_absolute() else f" (relative to {Path.cwd()})"
    return UserError(f"there is no file or folder at {text!r}{seen_from}")


def holdout(labels: Tensor | None, num: int, fraction: float, seed: int) -> tuple[Tensor, Tensor]:
    """Positions to keep and positions held out, both ascending, the same for the same seed.

    Stratified: each class gives its share, rounded down, and the classes with the largest remainders give one more
    until `fraction` of the whole is held out. A class never gives its last image.
    """
    generator = mixed_generator(seed, num)
    labels_N = torch.zeros(num, dtype=torch.int64) if labels is None or labels.dim() == 2 else labels
    _, inverse, counts = np.unique(labels_N.numpy(), return_inverse=True, return_counts=True)
    class_N, counts_K = torch.from_numpy(inverse), torch.from_numpy(counts)

    share_K = counts_K.double() * fraction
    quota_K = share_K.floor().long()
    num_missing = round(float(share_K.sum())) - int(quota_K.sum())
    remainder_K = share_K - quota_K
    shuffled_K = torch.randperm(len(counts_K), generator=generator)  # ties between remainders are broken at random
    by_remainder_K = shuffled_K[remainder_K[shuffled_K].argsort(descending=True, stable=True)]
    can_give_K = by_remainder_K[quota_K[by_remainder_K] + 1 < counts_K[by_remainder_K]]
    quota_K[can_give_K[:num_missing]] += 1
    quota_K = quota_K.minimum(counts_K - 1)

    order_N = torch.randperm(num, generator=generator)
    order_N = order_N[class_N[order_N].argsort(stable=True)]  # class by class, shuffled inside each
    rank_N = torch.arange(num) - (counts_K.cumsum(0) - counts_K).repeat_interleave(counts_K)
    held = torch.zeros(num, dtype=torch.bool)
    held[order_N] = rank_N < quota_K.repeat_interleave(counts_K)
    return (~held).nonzero().squeeze(1), held.nonzero().squeeze(1)


def long_tail(labels_N: Tensor, imbalance: float) -> Tensor:
    """Positions, ascending, of a long-tailed part of balanced data (Cui et al. 2019).

    Class c of K keeps n_c · imbalance^(-c / (K - 1)) of its n_c images, rounded down, but at least one. Which ones is
    the same for every run, so that all methods see the same images.
    """
    generator = mixed_generator(0, len(labels_N))
    num_classes = int(labels_N.max()) + 1
    kept = []
    for label in labels_N.unique().tolist():
        members = (labels_N == label).nonzero()[:, 0]
        num = max(1, int(len(members) * (1 / imbalance) ** (label / max(1, num_classes - 1))))
        kept.append(members[torch.randperm(len(members), generator=generator)[:num]])
    return torch.cat(kept).sort().values


def _without_classes(splits: Splits, fraction: float) -> tuple[Splits, ImageSet]:
    """Hold out the last classes, as papers on metric learning do, with their images of all splits."""
    num, labels = len(splits.class_names), splits.train.labels
    num_seen = num - max(1, round(num * fraction))
    if labels is None or labels.dim() == 2 or len(labels[labels < num_seen].unique()) < 2:
        raise UserError(f"data.unseen_classes={fraction:g} needs one label per image and two classes left to train on")
    kept: dict[str, ImageSet | None] = {}
    held: list[ImageSet] = []
    for part, images in splits.parts().items():
        if images.labels is not None:
            is_seen = images.labels < num_seen
            kept[part] = images.subset(is_seen.nonzero()[:, 0]) if is_seen.any() else None
            held.append(images.subset((~is_seen).nonzero()[:, 0]))
    pixels = [images.images for images in held if isinstance(images.images, Tensor)]
    unseen = replace(
        held[0],
        images=torch.cat(pixels) if pixels else list(chain.from_iterable(images.images for images in held)),
        labels=torch.cat([images.labels for images in held if images.labels is not None]),
        names=list(chain.from_iterable(images.names for images in held)),
    )
    return replace(splits, class_names=splits.class_names[:num_seen], **kept), unseen  # type: ignore[arg-type]  # all three are ImageSets


def _without_broken(splits: Splits, channels: int) -> tuple[Splits, tuple[Broken, ...]]:
    """Remove images that cannot be decoded, and list them. Distributed processes share the work."""
    skipped: list[Broken] = []
    kept: dict[str, ImageSet] = {}
    for part, images in splits.parts().items():
        if isinstance(images.images, Tensor):
            continue
        indices = range(distributed.rank(), len(images), distributed.world_size())
        decoded = images.subset(indices).decode_all(1, channels)
        found: dict[int, str] = {}
        with progress(f"check {part}", len(indices), unit="image") as advance:
            for number, (index, x_CSS) in enumerate(zip(indices, decoded, strict=True), 1):
                if isinstance(x_CSS, BrokenImageError):
                    found[index] = x_CSS.reason
                advance(number, f"{len(found)} broken" if found else "")
        found = {index: reason for share in distributed.gather_objects(found) for index, reason in share.items()}
        if len(found) == len(images):
            raise UserError(f"no {part} image can be decoded; the first, {images.names[0]!r}, {found[0]}")
        if found:
            skipped += [Broken(images.names[index], found[index]) for index in sorted(found)]
            kept[part] = images.subset(np.setdiff1d(np.arange(len(images)), list(found)))
    return replace(splits, **kept), tuple(skipped)  # type: ignore[arg-type]  # all three are ImageSets


def measure(train: ImageSet, full_range: bool = False, channels: int | None = None) -> Traits:
    """From up to 2,000 evenly spaced images, squashed to at most 64×64: the same images every time."""
    positions = np.linspace(0, len(train) - 1, min(len(train), NUM_SAMPLED)).round().astype(np.int64)
    sample = train.subset(positions)
    bits, ranges = 16, Ranges()
    if isinstance(sample.images, Tensor):
        image_size, found = min(sample.images.shape[2:]), {sample.images.shape[1]}
    else:
        read = partial(peek, channels=channels or 0, full_range=full_range)
        headers = list(map(read, sample.images, sample.names))
        image_size = Counter(min(header.width, header.height) for header in headers).most_common(1)[0][0]
        found = {header.channels for header in headers}
        bits = 16 if full_range else max(header.bits for header in headers) or 16
        all_ranges = [header.ranges for header in headers if header.ranges]
        if len(set(map(len, all_ranges))) > 1:  # gray and color are mixed: a single range
            all_ranges = [(limits,) for each in all_ranges for limits in each]
        limits_of_channels = [zip(*each, strict=True) for each in zip(*all_ranges, strict=True)]
        ranges = tuple((min(low), max(high)) for low, high in limits_of_channels)
        sample = replace(sample, bits=bits, ranges=ranges)
    if channels is None and len(found) > 1 and found != {1, 3}:
        raise UserError(f"the images have {' and '.join(map(str, sorted(found)))} channels; use images with the same")
    channels = channels or max(found)
    mean, std = moments(sample.resident(min(SAMPLE_SIZE, image_size), channels).numpy())
    return Traits(image_size=image_size, channels=channels, mean=mean, std=std, bits=bits, ranges=ranges)


def moments(x_NCHW: np.ndarray) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation per channel of uint8 pixels scaled to 0..1, to four decimals.

    A constant channel gets a deviation of one level, 1/255, because images are divided by it.
    """
    x_CN = [x_N / 255 for x_N in x_NCHW.swapaxes(0, 1).reshape(x_NCHW.shape[1], -1)]
    means = tuple(round(float(x_N.mean()), 4) for x_N in x_CN)
    return means, tuple(round(max(float(x_N.std()), 1 / 255), 4) for x_N in x_CN)


def digits_splits() -> Splits:
    """1,797 handwritten digits of 8×8 from scikit-learn. The first half trains, so the writers hardly mix."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    x_N1HW = torch.from_numpy(bunch.images).mul(255 / 16).round().to(torch.uint8).unsqueeze(1)
    labels = torch.from_numpy(bunch.target).long()
    half = len(labels) // 2
    everything = ImageSet(images=x_N1HW, labels=labels, names=list(map("digits#{}".format, range(1797))))
    return Splits(
        train=everything.subset(range(half)),
        test=everything.subset(range(half, len(labels))),
        class_names=tuple(map(str, range(10))),
        traits=Traits(image_size=8, channels=1, mean=(0.3075,), std=(0.377,)),
    )


def search_places(root: str | None) -> list[Path]:
    """Where a named data set may be: only `root` if given, else the usual places. Nothing is ever downloaded."""
    usual = [os.environ.get("CONTUNE_DATA"), "data", "~/.cache/contune"]
    return [expanded(place) for place in ([root] if root is not None else usual) if place]


TORCHVISION = {
    "cifar10": ("CIFAR10", "cifar-10-batches-py", 32, (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
    "cifar100": ("CIFAR100", "cifar-100-python", 32, (0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)),
    "fmnist": ("FashionMNIST", "FashionMNIST/raw", 28, (0.5,), (0.5,)),
}
"""torchvision's reader, the folder with its files, and the literature's image size, mean and standard deviation."""


def torchvision_splits(name: str, root: str | None, label_column: str | None) -> Splits:
    """The files as torchvision downloads them, or the data set's parquet shards in `place/name` or in a given root.

    torchvision compares CIFAR's checksums before it unpickles anything.
    """
    reader, folder, size, mean, std = TORCHVISION[name]
    traits = Traits(image_size=size, channels=len(mean), mean=mean, std=std)
    places = search_places(root)
    above = [folder for place in places for folder in place.absolute().parents[:2]]
    for place in [*places, *above]:
        if (place / folder).is_dir():
            return replace(_read_torchvision(name, reader, place), traits=traits)
    for path in [*(place / name for place in places), *([] if root is None else places)]:
        shards = find_shards(path) if path.exists() else []
        named = [part for shard in shards[:1] for part in Path(shard).parts if part in TORCHVISION]
        if shards and named[-1:] in ([], [name]):  # not the only one of several data sets in a folder
            return replace(parquet_splits(path, label_column), traits=traits)
    raise UserError(
        f"{name} was not found in {' or '.join(map(str, places))}, and contune downloads nothing; name a folder with "
        f"data.path, or run torchvision.datasets.{reader}({str(places[0])!r}, download=True)"
    )


def _read_torchvision(name: str, reader: str, place: Path) -> Splits:
    from contune.device import torchvision  # takes a second to import

    sets: list[ImageSet] = []
    for split in ("train", "test"):
        try:
            part = getattr(torchvision.datasets, reader)(place, train=split == "train")
            x_NHWC, labels_N = torch.as_tensor(part.data), torch.as_tensor(part.targets)
            assert len(x_NHWC) == len(labels_N)
        except Exception as error:  # damaged files make torchvision raise nearly anything
            raise UserError(f"the {split} files of {name} in {str(place)!r} are damaged; fetch them again") from error
        names = [f"{name}/{split}#{row}" for row in range(len(labels_N))]
        x_NCHW = x_NHWC.permute(0, 3, 1, 2) if x_NHWC.dim() == 4 else x_NHWC[:, None]
        sets.append(ImageSet(images=x_NCHW, labels=labels_N.long(), names=names))
    return Splits(train=sets[0], test=sets[1], class_names=tuple(part.classes))


def imagenet100_splits(root: str | None, classes: str | None) -> Splits:
    """`root/train/wnid/*` and `root/val/wnid/*`; `classes` is a text file with one wnid per line.

    Without that file the folder must have exactly 100 classes, which are numbered by sorted wnid. ImageNet's own
    validation images are the test split, as in the literature.
    """
    places = [place / name for place in search_places(root) for name in (".", "imagenet100", "imagenet")]
    folder = next((place for place in places if (place / "train").is_dir() and (place / "val").is_dir()), None)
    if folder is None:
        fix = "get ImageNet from https://image-net.org/download.php and name its folder with data.path"
        raise UserError(f"imagenet100 was not found: {', '.join(map(str, places))} lack train/ or val/; {fix}")
    if classes is None:
        wnids = {path.name for path in visible_folders(folder / "train")}
    else:
        listed = expanded(classes).read_text(encoding="utf-8").splitlines()
        wnids = {words[0] for words in (line.split("#")[0].split() for line in listed) if words}
    if len(wnids) != 100:
        where = classes or folder / "train"
        raise UserError(f"{where} has {len(wnids)} classes, not 100; list one wnid per line in a file for data.classes")
    class_names = tuple(sorted(wnids))
    sets: list[ImageSet] = []
    for part in ("train", "val"):
        files = [visible_files(folder / part / wnid) for wnid in class_names]
        if not all(files):
            raise UserError(f"{folder / part / class_names[files.index([])]} has no images; fetch them again")
        paths, labels = list(chain(*files)), torch.arange(100).repeat_interleave(torch.tensor(list(map(len, files))))
        sets.append(ImageSet(images=paths, labels=labels, names=paths))
    traits = Traits(image_size=224, channels=3, mean=(0.5,) * 3, std=(0.25,) * 3)
    return Splits(train=sets[0], test=sets[1], class_names=class_names, traits=traits)
