"""`contune check`: decode every image of a data set once and report what is wrong with it."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from contune.console import Finding, advice, fine, plural, progress, wrong
from contune.data.datasets import open_splits
from contune.data.decode import Broken, BrokenImageError, Header, peek, whole
from contune.data.folder import IMAGE_SUFFIXES, JOINT, find_tables, visible_files
from contune.data.images import ImageSet, map_in_workers, num_workers
from contune.data.parquet import find_shards
from contune.files import expanded

LARGEST_COMPARED = 64
"""Pictures are compared at this many pixels per side, small square ones pixel by pixel."""
SMALL_SIDE, UNBALANCED = 8, 10
COLUMNS = ("split", "images", "broken", "classes", "images per class", "width × height", "format")


@dataclass(kw_only=True)
class SplitFacts:
    """The images of one split, without the broken ones."""

    name: str
    num: int
    broken: list[Broken] = field(default_factory=list)
    constant: list[str] = field(default_factory=list)
    sides: Counter[tuple[int, int]] = field(default_factory=Counter)
    """By (width, height)."""
    kinds: Counter[str] = field(default_factory=Counter)
    classes: dict[str, int] = field(default_factory=dict)
    """Empty without labels."""

    @property
    def table_row(self) -> tuple[str, ...]:
        """Under COLUMNS."""
        widths, heights = zip(*self.sides, strict=True) if self.sides else ((), ())
        return (
            self.name,
            f"{self.num:,}",
            f"{len(self.broken):,}",
            f"{len(self.classes):,}" if self.classes else "no labels",
            _span(self.classes.values()),
            f"{_span(widths)} × {_span(heights)}" if widths else "",
            ", ".join(f"{kind} {num:,}" for kind, num in self.kinds.most_common(3)),
        )


class Copies(NamedTuple):
    """Images that are the same picture, with the split and label of each."""

    names: tuple[str, ...]
    splits: tuple[str, ...]
    labels: tuple[str | None, ...]


@dataclass(frozen=True, kw_only=True)
class Check:
    path: str
    splits: list[SplitFacts]
    copies: list[Copies]
    left_alone: Counter[str]
    """Files of a folder whose names are not those of images, by suffix."""

    def to_json(self) -> str:
        content = vars(self) | {"findings": list(map(vars, findings(self)))}
        content["copies"] = [copies._asdict() for copies in self.copies]
        content["splits"] = [
            vars(split)
            | {"broken": [broken._asdict() for broken in split.broken]}
            | {"sides": [{"width": w, "height": h, "images": num} for (w, h), num in split.sides.most_common()]}
            for split in self.splits
        ]
        return json.dumps(content, indent=2) + "\n"


def check(path: str, *, label_column: str | None = None, workers: int | None = None) -> Check:
    """Read all of a folder, CSV or parquet file as training would. A wrong structure raises a UserError."""
    splits = open_splits(path, label_column=label_column)
    facts: list[SplitFacts] = []
    seen: dict[bytes, list[tuple[str, str, str | None]]] = {}
    for part, images in splits.parts().items():
        has_labels, names = images.labels is not None, images.label_names(splits.class_names)
        found = SplitFacts(
            name=part, num=len(images), classes=dict.fromkeys(splits.class_names if has_labels else (), 0)
        )
        facts.append(found)
        num = num_workers(len(images), workers)
        inspected = map_in_workers(partial(inspect, images), range(len(images)), workers=num, at_once=64, stop=False)
        with progress(part, len(images), unit="image") as advance:
            for number, (name, own, one) in enumerate(zip(images.names, names, inspected, strict=True), 1):
                advance(number, f"{len(found.broken)} broken" if found.broken else "")
                if isinstance(one, BrokenImageError):
                    found.broken.append(Broken(name, one.reason))
                    continue
                header, is_constant, picture = one
                found.constant += [name] if is_constant else []
                found.sides[header.width, header.height] += 1
                found.kinds[header.kind] += 1
                for label in own:
                    found.classes[label] += 1
                seen.setdefault(picture, []).append((name, part, JOINT.join(own) or None))
    copies = [Copies(*zip(*group, strict=True)) for group in seen.values() if len(group) > 1]
    place = expanded(path)
    only_images = place.is_dir() and not find_shards(place) and not find_tables(place)
    endings = [Path(file).suffix.lower() for file in (visible_files(place, ("",)) if only_images else ())]
    left_alone = Counter(ending or "no ending" for ending in endings if ending not in IMAGE_SUFFIXES)
    return Check(path=path, splits=facts, copies=copies, left_alone=left_alone)


def inspect(images: ImageSet, index: int) -> tuple[Header, bool, bytes]:
    """The size and format of an image, whether it is of one color, and a hash.

    The hash of size and pixels stays the same if the picture is saved again without loss.
    """
    if isinstance(images.images, Tensor):
        channels, height, width = images.images.shape[1:]
        header = Header(width, height, "pixels", channels)
    else:
        header = peek(images.images[index], images.names[index])
    channels = 3 if header.channels == 1 else header.channels
    x_SSC = images.pieces(index, whole, min(LARGEST_COMPARED, header.width, header.height), channels)[0]
    content = f"{header.width}×{header.height} ".encode() + x_SSC.tobytes()
    return header, bool((x_SSC == x_SSC[0, 0]).all()), blake2b(content, digest_size=16).digest()


def findings(found: Check) -> Iterator[Finding]:
    """The worst first."""
    total = sum(split.num for split in found.splits)
    reasons = Counter(broken.reason.partition(" (")[0] for split in found.splits for broken in split.broken)
    if reasons:
        most = "; ".join(f"{reason}: {num:,}" for reason, num in reasons.most_common(4))
        fix = "repair or remove them, or train with data.broken=skip"
        yield wrong(f"{reasons.total():,} of {plural(total, 'image')} cannot be decoded ({most}); {fix}")
    else:
        yield fine(f"all images decode ({total:,})")

    across = [copies for copies in found.copies if len(set(copies.splits)) > 1]
    inside = [copies for copies in found.copies if len(set(copies.splits)) < len(copies.splits)]
    disputed = [copies for copies in found.copies if len(set(copies.labels) - {None}) > 1]
    if across:
        held = sum(split != "train" for copies in across for split in copies.splits)
        fix = f"such as {across[0].names[-1]!r}; remove them from one split"
        yield wrong(f"held-out images that are also in another split: {held:,}, {fix}")
    if disputed:
        one, other = disputed[0].names[:2]
        yield wrong(f"images in several classes: {len(disputed):,}, such as {one!r} and {other!r}; keep one label")
    if inside:
        surplus = sum(len(copies.names) - len(set(copies.splits)) for copies in inside)
        fix = f"such as {inside[0].names[1]!r}; one may be trained on and the other tested"
        yield advice(f"copies of another image in the same split: {surplus:,}, {fix}")
    if not found.copies:
        yield fine("no image appears twice")

    constant = [name for split in found.splits for name in split.constant]
    small = sum(num for split in found.splits for side, num in split.sides.items() if min(side) < SMALL_SIDE)
    if constant:
        yield advice(f"images of a single color: {len(constant):,}, such as {constant[0]!r}")
    if small:
        yield advice(f"images less than {SMALL_SIDE} pixels high or wide: {small:,}")

    for split in (split for split in found.splits if split.classes):
        empty = [name for name, num in split.classes.items() if not num]
        smallest, largest = min(split.classes.values()), max(split.classes.values())
        if empty and split.name == "train":
            yield wrong(f"classes without a training image that decodes: {len(empty):,}, such as {empty[0]!r}")
        elif largest > UNBALANCED * max(1, smallest):
            fix = "train with optim.balance=none first, and read the accuracy of each class"
            yield advice(f"classes have from {smallest:,} to {largest:,} {split.name} images; {fix}")
    if found.left_alone:
        kinds = ", ".join(f"{suffix} {num:,}" for suffix, num in found.left_alone.most_common(4))
        yield advice(f"files ignored because of their endings: {found.left_alone.total():,} ({kinds})")


def _span(values: Any) -> str:
    low, high = min(values, default=0), max(values, default=0)
    return "" if not values else f"{low:,}" if low == high else f"{low:,}–{high:,}"
