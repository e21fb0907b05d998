"""What a person should know of a preflight: a few sentences, a table, and all of it as JSON."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from contune.console import Finding, advice, agreeing, fine, plural, wrong
from contune.data.imageset import where_labels_may_be
from contune.data.preflight import Preflight, SplitFacts

SMALL_SIDE = 8
WIDE = 10
UNBALANCED = 10
COLUMNS = ("split", "images", "broken", "classes", "images a class", "width × height", "format")


def findings(found: Preflight) -> Iterator[Finding]:
    """The worst first."""
    yield from _broken(found)
    yield from _copies(found)
    yield from _look(found)
    yield from _classes(found)
    yield from _around(found)


def table_row(split: SplitFacts) -> tuple[str, ...]:
    """One for each split, under COLUMNS."""
    counts = split.classes.values()
    return (
        split.name,
        f"{split.num:,}",
        f"{len(split.broken):,}",
        f"{len(split.classes):,}" if counts else "no labels",
        _range(min(counts), max(counts)) if counts else "",
        _sides(split),
        ", ".join(f"{kind} {num:,}" for kind, num in split.kinds.most_common(3)),
    )


def as_json(found: Preflight) -> dict[str, Any]:
    return {
        "path": found.path,
        "findings": [asdict(finding) for finding in findings(found)],
        "splits": [
            vars(split)
            | {
                "broken": [broken._asdict() for broken in split.broken],
                "sides": [{"width": w, "height": h, "images": num} for (w, h), num in split.sides.most_common()],
            }
            for split in found.splits
        ],
        "copies": [asdict(copies) for copies in found.copies],
        "left_alone": dict(found.left_alone),
        "circular_links": found.circular_links,
    }


def is_check(path: Path) -> bool:
    """Whether a file holds what `as_json` makes."""
    return set(json.loads(path.read_text(encoding="utf-8"))) == {
        "path", "findings", "splits", "copies", "left_alone", "circular_links"
    }  # fmt: skip


def _broken(found: Preflight) -> Iterator[Finding]:
    reasons = Counter(broken.reason.partition(" (")[0] for split in found.splits for broken in split.broken)
    total = sum(split.num for split in found.splits)
    if reasons:
        most = "; ".join(f"{num:,} {_of_so_many(reason, num)}" for reason, num in reasons.most_common(4))
        them = agreeing(reasons.total(), "it", "them")
        yield wrong(
            f"{_are_of(reasons.total(), total)} broken ({most}); "
            f"mend or remove {them}, or train without {them} by data.broken=skip"
        )
    else:
        yield fine("the only image decodes" if total == 1 else f"all {total:,} images decode")


def _there_are(num: int, noun: str) -> str:
    return f"{plural(num, noun)} {agreeing(num, 'is', 'are')}"


def _are_of(num: int, total: int) -> str:
    return f"{num:,} of {plural(total, 'image')} {agreeing(num, 'is', 'are')}"


def _of_so_many(reason: str, num: int) -> str:
    """`is damaged`, said of one image, as it is said of several."""
    verb, _, rest = reason.partition(" ")
    return f"{agreeing(num, verb, {'is': 'are', 'has': 'have'}.get(verb, verb))} {rest}"


def _copies(found: Preflight) -> Iterator[Finding]:
    across = [copies for copies in found.copies if len(set(copies.splits)) > 1]
    inside = [copies for copies in found.copies if len(set(copies.splits)) < len(copies.splits)]
    disputed = [copies for copies in found.copies if len(set(copies.labels) - {None}) > 1]
    if across:
        held = sum(split != "train" for copies in across for split in copies.splits)
        yield wrong(
            f"{_there_are(held, 'held-out image')} in another split too, such as {across[0].names[-1]!r}; accuracies "
            "on them say nothing about new images, so remove them from one"
        )
    if disputed:
        yield wrong(
            f"{_there_are(len(disputed), 'picture')} in several classes, such as {disputed[0].names[0]!r} and "
            f"{disputed[0].names[1]!r}; decide which is right"
        )
    if inside:
        surplus = sum(len(copies.names) - len(set(copies.splits)) for copies in inside)
        yield advice(
            f"{_there_are(surplus, 'image')} like another in the same split to the pixel, such as "
            f"{inside[0].names[1]!r}; where a test set is held out of it, the two may fall on both sides"
        )
    if not found.copies:
        yield fine("no picture is there twice")


def _look(found: Preflight) -> Iterator[Finding]:
    constant = [name for split in found.splits for name in split.constant]
    if constant:
        yield advice(
            f"{plural(len(constant), 'image')} {agreeing(len(constant), 'has', 'have')} a single colour throughout, "
            f"such as {constant[0]!r}"
        )
    sides = [(min(side), max(side), num) for split in found.splits for side, num in split.sides.items()]
    small = sum(num for shorter, _, num in sides if shorter < SMALL_SIDE)
    wide = sum(num for shorter, longer, num in sides if longer > WIDE * shorter)
    if small:
        yield advice(f"{_there_are(small, 'image')} less than {SMALL_SIDE} pixels high or wide")
    if wide:
        yield advice(
            f"{_there_are(wide, 'image')} over {WIDE} times as long as wide, and would be squashed to a square"
        )
    decoded = sum(num for *_, num in sides)
    gray = sum(split.num_gray for split in found.splits)
    if 0 < gray < decoded:
        yield advice(
            f"{_are_of(gray, decoded)} gray and the {agreeing(decoded - gray, 'other', 'others')} coloured; "
            "all are read as colour"
        )


def _classes(found: Preflight) -> Iterator[Finding]:
    if found.maybe_labels:
        way = where_labels_may_be(found.maybe_labels, "--label-column ")
        yield advice(f"no label column of a usual name; {way}")
    for split in found.splits:
        if not split.classes:
            continue
        empty = [name for name, num in split.classes.items() if not num]
        smallest, largest = min(split.classes.values()), max(split.classes.values())
        if empty and split.name == "train":
            several = f"{len(empty):,} classes, such as {empty[0]!r}, have"
            whose = agreeing(len(empty), f"class {empty[0]!r} has", several)
            yield wrong(f"{whose} no {split.name} image that decodes")
        elif largest > UNBALANCED * max(1, smallest):
            yield advice(
                f"classes have from {smallest:,} to {largest:,} {split.name} images; "
                "data.sampler=balanced gives each its share of every batch"
            )


def _around(found: Preflight) -> Iterator[Finding]:
    if found.left_alone:
        num = found.left_alone.total()
        kinds = ", ".join(f"{each:,} {suffix}" for suffix, each in found.left_alone.most_common(4))
        names = agreeing(num, "image by its name and is", "images by their names and are")
        yield advice(f"{_there_are(num, 'file')} no {names} left alone ({kinds})")
    if found.circular_links:
        num = len(found.circular_links)
        yield advice(
            f"{plural(num, 'link')} {agreeing(num, 'leads', 'lead')} back to a folder above, such as "
            f"{found.circular_links[0]!r}, and {agreeing(num, 'is', 'are')} not followed"
        )


def _sides(split: SplitFacts) -> str:
    if not split.sides:
        return ""
    widths, heights = zip(*split.sides, strict=True)
    return f"{_range(min(widths), max(widths))} × {_range(min(heights), max(heights))}"


def _range(low: int, high: int) -> str:
    return f"{low:,}" if low == high else f"{low:,}–{high:,}"
