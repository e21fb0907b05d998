"""report.html: a finished run on one page that needs no network, no server and no JavaScript."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from contune.analysis.circumstances import environment, settings
from contune.analysis.classes import per_class
from contune.analysis.confusion import confusions
from contune.analysis.curves import curves
from contune.analysis.embedding_map import embedding_map
from contune.analysis.headline import accuracies, data_title, headline
from contune.analysis.measured import Measured
from contune.analysis.neighbours import neighbours
from contune.analysis.page import missing, page, section
from contune.analysis.wording import measure_title
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
) -> None:
    """Write the report of a run to `path`.

    `result`, `config` and `metrics` are what the run folder holds; `images` the measured split, with the
    encoder's features and the predicted class of each image. What is missing, the page says so.
    """
    measured = None
    if images is not None and features_MD is not None and len(images):
        measured = Measured(
            images=images,
            channels=channels,
            class_names=class_names,
            features_MD=features_MD,
            predicted_M=predicted_M,
        )
    data = data_title(result, config)
    why = _why_unmeasured(measured, result)
    body = [
        headline(result, data, why, _most_frequent(measured)),
        accuracies(result["measures"], why),
        curves(metrics),
        *_about_images(measured, result, why),
        settings(config),
        environment(result),
    ]
    text = page(f"{result['method']} on {data} · contune", "\n".join(body))
    path.write_text(text, encoding="utf-8", newline="\n")


def _why_unmeasured(measured: Measured | None, result: dict[str, Any]) -> str:
    if measured is None:
        return (
            f"This data has no {result['split']} split, so nothing was measured. "
            "Hold some images out with <code>data.test_fraction=0.2</code>."
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


def _about_images(measured: Measured | None, result: dict[str, Any], why: str) -> list[str]:
    by_name = {measure["name"]: measure for measure in result["measures"]}
    name = next((name for name in _CLASS_MEASURES if name in by_name), None)
    if measured is None:
        return [section("images", "Classes, map and neighbours", missing(why))]
    if measured.labels is None or name is None:
        return [section("classes", "Classes", missing(why)), embedding_map(measured), neighbours(measured)]
    counts = measured.labels.bincount(minlength=len(measured.class_names)).tolist()
    return [
        _confusions(measured, result["measures"]),
        per_class(name, by_name[name]["per_class"], dict(zip(measured.class_names, counts, strict=True))),
        embedding_map(measured),
        neighbours(measured),
    ]


def _confusions(measured: Measured, measures: list[dict[str, Any]]) -> str:
    if measured.predicted_M is None:
        why = "Confusions are drawn from a linear probe, and <code>eval.linear=none</code> asked for none."
        return section("confusions", "Confusions", missing(why))
    accuracy = 100 * (1 - measured.wrong().double().mean())
    names = [m["name"] for m in measures if torch.isclose(accuracy, torch.tensor(m["top1"]).double())]
    return confusions(measured, measure_title(names[0]).lower() if names else "classifier")
