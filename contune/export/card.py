"""The README.md of an export: what the encoder is, how it was made, how good it is, how to load it."""

from collections.abc import Iterable, Sequence
from typing import Any

from contune import __version__
from contune.eval.measures import MEASURES
from contune.export.source import Source, Written

_LEFT_OUT = ("augment.per_view", "model.encoder", "model.norm", "model.stem")
_FRONT_MATTER = """\
---
library_name: {library}
pipeline_tag: image-feature-extraction
tags: [contune, contrastive-learning]
---"""
"""What model hubs read."""
LICENCE = "*Not chosen yet. Write here under which terms others may use these weights; those of the data bear on it.*"


def model_card(source: Source, written: Written) -> str:
    result, spec = source.result, source.spec
    made = "" if result is None else f", trained on {result['data']} by {result['method']}"
    parts = [
        _FRONT_MATTER.format(library=written.library),
        f"# {spec.encoder}{made}",
        f"An image encoder: {_images(source)} in, {source.encoder.num_features} features out.",
        f"## How to load it\n\n{written.usage.strip()}",
        f"## How good it is\n\n{_measured(result)}",
        f"## How it was trained\n\n{_training(result)}",
        f"## Images\n\n{_preprocessing(source)}",
        f"## Licence\n\n{LICENCE}",
        f"## Where it comes from\n\n{_origin(result, written)}",
    ]
    return "\n\n".join(parts) + "\n"


def _images(source: Source) -> str:
    colour = "gray" if source.spec.channels == 1 else "colour"
    return f"{colour} images of {source.spec.image_size}×{source.spec.image_size} pixels"


def _measured(result: dict[str, Any] | None) -> str:
    if result is None or not result.get("measures"):
        return "Nothing was measured: that takes labels and a test split."
    rows = [
        (
            MEASURES[measure["name"]].short_title,
            f"{measure['top1']:.2f}",
            "–" if measure["top5"] is None else f"{measure['top5']:.2f}",
            f"{measure['num_images']:,}",
            measure["protocol"],
        )
        for measure in result["measures"]
    ]
    return _table(("", "top-1 %", "top-5 %", f"{result['split']} images", "protocol"), rows)


def _training(result: dict[str, Any] | None) -> str:
    if result is None:
        return "The run left no result.json, so nothing is known of it here."
    config: dict[str, dict[str, Any]] = result["config"]
    rows: list[tuple[str, str]] = [("data", f"{result['data']}"), ("seed", str(result["seed"]))]
    for section in ("method", "augment", "optim"):
        for name, value in config[section].items():
            if f"{section}.{name}" not in _LEFT_OUT or value:
                rows.append((f"`{section}.{name}`", _text(value)))
    return _table(("", ""), rows)


def _preprocessing(source: Source) -> str:
    spec = source.spec
    return (
        "Upright as their EXIF says, transparency on white, of 16 bits the high byte (Pillow's `convert` clips them), "
        f"{'gray' if spec.channels == 1 else 'RGB'}, squashed to {spec.image_size}×{spec.image_size} (bilinear, "
        f"antialiased), divided by 255, less the mean {_text(spec.mean)}, divided by {_text(spec.std)}."
    )


def _origin(result: dict[str, Any] | None, written: Written) -> str:
    rows = [("exported by", f"contune {__version__}")]
    if result is not None:
        rows += [
            ("revision", result["git_revision"] or "an installed package, no checkout"),
            ("versions", ", ".join(f"{name} {version}" for name, version in result["versions"].items())),
            ("hardware", result["hardware"]),
            ("finished", result["finished"]),
        ]
    rows.append(("features", f"compared with the run's on photos: they differ by {written.deviation:.1e} at most"))
    return _table(("", ""), rows)


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "; ".join(map(_text, value)) or "none"
    return "none" if value is None else str(value)


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
