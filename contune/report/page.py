"""Pages without network, server or JavaScript, from the templates in this folder; and the report of a finished run.

Jinja escapes whatever is put into a template: class names, paths, settings.
"""

import base64
import re
import shlex
from collections.abc import Sequence
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from PIL import Image
from torch import Tensor

from contune.console import plural
from contune.data.decode import Broken
from contune.data.images import ImageSet
from contune.eval import measures
from contune.report.statistics import wilson_interval
from contune.settings import as_text

GENERATOR = '<meta name="generator" content="contune {kind}">'
"""In the head of a page. A command overwrites only pages of its own kind."""
THUMBNAIL_SIDE = 128
TINY_SIDE = 64
"""Images up to this side are shown pixel by pixel; larger ones are photos."""

_UNPRINTABLE = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
"""File names may contain bytes that are no text."""


def render(template: str, kind: str, title: str, **values: Any) -> str:
    """A whole page; `kind` is what it shows."""
    generator = Markup(GENERATOR.format(kind=kind))
    text = _templates().get_template(template).render(generator=generator, title=title, **values)
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text)


@cache
def _templates() -> Environment:
    files = PackageLoader("contune.report", ".")
    found = Environment(loader=files, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    functions = (as_text, duration, plural, shorten, thumbnail, wilson_interval)
    found.globals.update({each.__name__: each for each in functions}, measures=measures)
    return found


def shorten(text: str, length: int) -> str:
    """The last `length` characters at most, where paths differ."""
    return text if len(text) <= length else "…" + text[len(text) - length + 1 :]


def duration(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def thumbnail(images: ImageSet, index: int, channels: int, description: str) -> Markup:
    """An <img>: gray, or the first three channels. `description` is its alternative text."""
    x_CHW = images.decode(index, None, channels)
    picture = Image.fromarray(x_CHW[0] if len(x_CHW) < 3 else np.ascontiguousarray(x_CHW[:3].transpose(1, 2, 0)))
    tiny, out = max(picture.size) <= TINY_SIDE, BytesIO()
    picture.thumbnail((THUMBNAIL_SIDE, THUMBNAIL_SIDE))
    picture.save(out, format="WEBP", lossless=tiny, quality=85)
    look, data = Markup(' class="tiny"' if tiny else ""), base64.b64encode(out.getvalue()).decode()
    return Markup('<img{} src="data:image/webp;base64,{}" alt="{}">').format(look, data, description)


def data_title(data: str) -> str:
    """What people call the data: its name, or that of the folder of their own images."""
    return Path(data).name or data


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
    skipped: Sequence[Broken] = (),
) -> None:
    """Write the report of a finished run to `path`.

    `result`, `config` and `metrics` are what the run folder holds. `images` is the evaluated split, with the encoder's
    features and the class of each image according to the measure `predicted_by`. `skipped` could not be decoded.
    Where something is missing, the page says why.
    """
    from contune.report import plots  # matplotlib is slow to import
    from contune.report.style import run_style

    data = data_title(str(config["data"]["path"]) if result["data"] == "images" else result["data"])
    style = run_style(config["method"])
    judged = []
    columns = (measures.LINEAR, measures.CLASSIFIER, measures.KNN)
    for column, raw in zip(columns, (measures.LINEAR, measures.LINEAR, measures.KNN), strict=True):
        if measure := measures.judged_by(result, column):
            start = measures.judged_by(result, raw, prefix=measures.START)
            pixels = measures.judged_by(result, raw, prefix=measures.PIXELS)
            judged.append((measure, {"before training": start, "raw pixels": pixels}))
    num_views = config["optim"]["batch_images"] * config["augment"]["views"]
    is_softmax = result["method"] in ("tcl", "supcon", "simclr") and not config["method"].get("cross_entropy")
    settings, num_terms = config["method"], is_softmax * (num_views - 1.0)
    if settings.get("k1") == settings.get("k2") == "auto":  # so only TCL
        num_terms *= 1 + settings["r"]
    elif settings.get("k2", 1.0) != 1.0 or settings.get("k1") == "auto":
        num_terms = 0.0  # it depends on the number of positives
    figures = plots.curves([(metrics, style, ())], num_terms=num_terms)
    by_class = next((each for each, _ in judged if each["name"] == predicted_by), judged[0][0] if judged else None)
    values: dict[str, Any] = {"majority": None, "classes": None, "by_class": by_class}
    if images is not None and features_MD is not None:
        own_M = mistaken_M = np.full(len(images), "")
        if images.labels is not None and images.labels.dim() == 1:
            values["majority"] = 100 * int(images.labels.bincount().max()) / len(images)
            names_K = np.array(class_names)
            own_M = names_K[images.labels]
            if predicted_M is not None:
                mistaken_M = np.where(predicted_M == images.labels, "", names_K[predicted_M])
            if by_class:
                values["classes"] = plots.classes(by_class["per_class"], own_M, mistaken_M)
        values |= {"own_M": own_M, "mistaken_M": mistaken_M, "channels": channels, "predicted_by": predicted_by}
        values["num_wrong"] = np.count_nonzero(mistaken_M != "")
        values["map"] = plots.embedding_map(features_MD, own_M, mistaken_M)
        values["neighbors"] = plots.neighbors(features_MD, mistaken_M)
    text = render(
        "report.html",
        "report",
        f"{style.title} on {data}",
        **values,
        method=style.title,
        data=data,
        result=result,
        config=config,
        judged=judged,
        figures=figures,
        images=images,
        skipped=skipped,
        run=shlex.quote(str(path.parent)) if (path.parent / "config.json").exists() else "RUN",
    )
    path.write_text(text, encoding="utf-8", newline="\n")
