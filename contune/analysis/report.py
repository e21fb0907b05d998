"""report.html: a finished run on one page that needs no network, no server and no JavaScript."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from contune.analysis.circumstances import environment, settings
from contune.analysis.classes import per_class
from contune.analysis.confusion import confusions
from contune.analysis.curves import curves
from contune.analysis.embedding_map import embedding_map
from contune.analysis.headline import accuracies, data_title, headline
from contune.analysis.measured import Measured
from contune.analysis.neighbours import neighbours
from contune.analysis.page import escape, missing, page, section
from contune.analysis.skipped import skipped_images
from contune.analysis.wording import measure_title
from contune.data.broken import Broken
from contune.data.imageset import ImageSet

_CLASS_MEASURES = ("linear", "linear-fast", "classifier", "knn")


def write_report(
    path: Path,
    *,
    result: dict[str, Any],
    config: dict[str, dict[str, Any]],
    metrics: list[dict[str, float]],
    class_names: tuple[str, ...],
    images: ImageSet | None,
    channels: int,
    features_MD: Tensor | None,
    predicted_M: Tensor | None,
    predicted_by: str,
    points_N2: np.ndarray | None = None,
    skipped: Sequence[Broken] = (),
) -> None:
    """Write the report of a run to `path`.

    `result`, `config` and `metrics` are what the run folder holds; `images` the measured split, with the encoder's
    features and the class of each image as the measure `predicted_by` has it; `points_N2` where they lie on the map,
    computed here if not given; `skipped` what could not be decoded. What is missing, the page says so.
    """
    measured = None
    if images is not None and features_MD is not None and len(images):
        measured = Measured(
            images=images,
            channels=channels,
            class_names=class_names,
            features=features_MD,
            predicted=predicted_M,
            predicted_by=predicted_by,
            points=points_N2,
        )
    data = data_title(result, config)
    body = [
        headline(result, data, _why_unmeasured(measured, result), _most_frequent(measured)),
        accuracies(result["measures"]),
        curves(metrics),
        *_about_images(measured, result),
        skipped_images(skipped),
        settings(config),
        environment(result),
    ]
    text = page("report", f"{result['method']} on {data} · contune", "\n".join(body))
    path.write_text(text, encoding="utf-8", newline="\n")


def _why_unmeasured(measured: Measured | None, result: dict[str, Any]) -> str:
    split = escape(result["split"])
    if measured is None:
        return (
            f"This data has no {split} split, so nothing was measured. "
            f"Hold some images out with <code>data.{split}_fraction=0.2</code>."
        )
    if measured.labels is None:
        return (
            "These images have no labels, so there is no accuracy to measure. "
            "The map and the neighbours show what the encoder learned."
        )
    return "No accuracy was measured."


def _most_frequent(measured: Measured | None) -> float | None:
    if measured is None or measured.labels is None:
        return None
    return 100 * int(measured.labels.bincount().max()) / len(measured)


def _about_images(measured: Measured | None, result: dict[str, Any]) -> list[str]:
    by_name = {measure["name"]: measure for measure in result["measures"]}
    name = next((name for name in _CLASS_MEASURES if name in by_name), None)
    if measured is None:
        why = f"These are drawn from the {escape(result['split'])} images, of which there are none."
        return [section("images", "Classes, map and neighbours", missing(why))]
    if measured.labels is None or name is None:
        why = "Confusions and accuracy by class take labels and a measured accuracy."
        return [embedding_map(measured), neighbours(measured), section("classes", "Classes", missing(why))]
    counts = measured.labels.bincount(minlength=len(measured.class_names)).tolist()
    return [
        _confusions(measured),
        per_class(name, by_name[name]["per_class"], dict(zip(measured.class_names, counts, strict=True))),
        embedding_map(measured),
        neighbours(measured),
    ]


def _confusions(measured: Measured) -> str:
    if measured.predicted is None:
        why = "Confusions are drawn from a linear probe, and <code>eval.linear=none</code> asked for none."
        return section("confusions", "Confusions", missing(why))
    return confusions(measured, measure_title(measured.predicted_by).lower())
