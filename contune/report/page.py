"""report.html: a finished run on one page without network, server or JavaScript; and the parts every page is made of.

Whatever comes from outside (class names, paths, settings) goes through `escape`.
"""

import base64
import html
import re
from collections.abc import Collection, Iterable, Sequence
from importlib import resources
from io import BytesIO
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor

from contune.console import plural
from contune.data.decode import Broken
from contune.data.images import ImageSet
from contune.eval.measures import (
    CLASSIFIER,
    KNN,
    LINEAR,
    MAP,
    MEASURES,
    PIXELS,
    RETRIEVAL,
    START,
    columns_of_imbalance,
    judged_by,
)
from contune.report.statistics import wilson_interval
from contune.settings import as_text

GENERATOR = '<meta name="generator" content="contune {kind}">'
"""In the head of a page. A command overwrites only pages of its own kind."""
NOTHING = '<span class="none">–</span>'
THUMBNAIL_SIDE = 128
TINY_SIDE = 64
"""Images up to this side are shown pixel by pixel; larger ones are photos."""

UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def escape(value: object) -> str:
    """Text that is safe between tags and inside quotes. File names may contain bytes that are no text."""
    return html.escape(UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", str(value)))


def shorten(text: str, length: int) -> str:
    """The last `length` characters at most, where paths differ."""
    return text if len(text) <= length else "…" + text[len(text) - length + 1 :]


def duration(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def page(kind: str, title: str, body: str) -> str:
    """A whole page; `kind` is what it shows, `body` is HTML."""
    folder, generator = resources.files("contune.report"), GENERATOR.format(kind=kind)
    style, template = folder.joinpath("page.css").read_text("utf-8"), folder.joinpath("page.html").read_text("utf-8")
    return Template(template).substitute(title=escape(title), generator=generator, style=style, body=body)


def header(what: str, title: str, facts: Sequence[str], *parts: str) -> str:
    """The top of a page. All arguments are HTML."""
    return f"""<header>
<p class="brand">contune <span>{what}</span></p>
<h1>{title}</h1>
<p class="facts">{" · ".join(facts)}</p>
{chr(10).join(parts)}
</header>"""


def section(name: str, title: str, lead: str, *parts: str) -> str:
    """`name` is the anchor, `lead` says how to read the section. All are HTML; empty ones are left out."""
    body = "\n".join(filter(None, (f'<p class="lead">{lead}</p>' if lead else "", *parts)))
    return (
        f'<section id="{name}" aria-labelledby="{name}-title">\n<h2 id="{name}-title">{title}</h2>\n{body}\n</section>'
    )


def missing(why: str) -> str:
    """In place of a part that this run cannot have; `why` is HTML."""
    return f'<p class="missing">{why}</p>'


def table(look: str, heads: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Collection[int] = ()) -> str:
    """A table of HTML cells whose first column heads the rows. The columns in `numbers` are right-aligned."""
    lines = [f'<table class="{look}">']
    for row in [heads, *rows] if heads else rows:
        line, scope = "", "col" if row is heads else "row"
        for column, cell in enumerate(row):
            look = ' class="number-cell"' if column in numbers else ""
            is_head = row is heads or not column
            line += f'<th scope="{scope}"{look}>{cell}</th>' if is_head else f"<td{look}>{cell}</td>"
        lines.append(f"<thead><tr>{line}</tr></thead>" if row is heads else f"<tr>{line}</tr>")
    return "\n".join([*lines, "</table>"])


def thumbnail(images: ImageSet, index: int, channels: int, description: str) -> str:
    """An <img>: gray, or the first three channels. `description` is its alternative text, already escaped."""
    x_CHW = images.decode(index, None, channels)
    picture = Image.fromarray(x_CHW[0] if len(x_CHW) < 3 else np.ascontiguousarray(x_CHW[:3].transpose(1, 2, 0)))
    tiny, out = max(picture.size) <= TINY_SIDE, BytesIO()
    picture.thumbnail((THUMBNAIL_SIDE, THUMBNAIL_SIDE))
    picture.save(out, format="WEBP", lossless=tiny, quality=85)
    look, data = ' class="tiny"' if tiny else "", base64.b64encode(out.getvalue()).decode()
    return f'<img{look} src="data:image/webp;base64,{data}" alt="{description}">'


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
    from contune.report import plots  # imports this module; matplotlib is slow to import
    from contune.report.style import method_style

    data = data_title(str(config["data"]["path"]) if result["data"] == "images" else result["data"])
    style = method_style(result["method"])
    labels_M = None if images is None or images.labels is None or images.labels.dim() == 2 else images.labels
    # The header: what was trained on what, and how good it is.
    cards, first, note = [], None, ""
    for column, raw in ((LINEAR, LINEAR), (CLASSIFIER, LINEAR), (KNN, KNN)):
        if (measure := judged_by(result, column)) is None:
            continue
        first, about, others = first or measure, MEASURES[measure["name"]], ""
        key, title = (MAP, f"{about.title}, mAP") if MAP in measure else ("top1", about.title)
        for prefix, what in ((START, "before training"), (PIXELS, "raw pixels")):
            if baseline := judged_by(result, raw, prefix=prefix):
                gain = f"{measure[key] - baseline[key]:+.1f}".replace("-", "−")
                others += f'<p>{what} {baseline[key]:.1f}\u202f% <span class="gain">{gain} points</span></p>'
        cards.append(f"""<li class="card">
<p class="what">{title}</p>
<p class="number">{measure[key]:.1f}<span>\u202f%</span></p>
{others}
<p class="meaning">{about.meaning[0].upper()}{about.meaning[1:]}.</p>
</li>""")
    if first is not None:
        what = "Mean average precision" if MAP in first else "Accuracy"
        note = f"{what} on {first['num_images']:,} {escape(first['split'])} images that were not trained on."
        if labels_M is not None:
            majority = 100 * int(labels_M.bincount().max()) / len(labels_M)
            note += f" The most frequent class has {majority:.1f}\u202f% of them."
    # The evaluated images: classes, map and neighbors.
    if images is None or features_MD is None:
        split = escape(result["split"])
        why = f"There is no {split} split. Hold some images out with <code>data.{split}_fraction=0.2</code>."
        images_parts = [section("images", "Classes, map and neighbors", "", missing(why))]
    else:
        why = "No accuracy was measured." if images.labels is not None else "These images have no labels."
        own_M = mistaken_M = np.full(len(images), "")
        if labels_M is not None:
            names_K = np.array(class_names)
            own_M = names_K[labels_M]
            if predicted_M is not None:
                mistaken_M = np.where(predicted_M == labels_M, "", names_K[predicted_M])
        images_parts = [
            plots.embedding_map(images, features_MD, own_M, mistaken_M),
            plots.neighbors(images, channels, features_MD, own_M, mistaken_M),
        ]
        if labels_M is not None and first is not None:
            images_parts.insert(0, plots.classes(first, predicted_by, images, channels, own_M, mistaken_M))
    facts = [
        f"<strong>{escape(result['encoder'])}</strong> encoder",
        plural(int(result["epochs"]), "epoch"),
        f"{duration(result['seconds'])} on {escape(result['hardware'])}",
        f"seed {escape(result['seed'])}",
    ]
    shown = f'<ul class="cards">\n{chr(10).join(cards)}\n</ul>\n<p class="lead">{note}</p>' if cards else missing(why)
    shown += "".join(f'\n<p class="warning">{escape(warning)}</p>' for warning in result.get("warnings", ()))
    parts = [header("training report", f"{escape(style.title)} <span>on</span> {escape(data)}", facts, shown)]
    if result["measures"]:
        rows: list[tuple[str, ...]] = []
        more = columns_of_imbalance(result["measures"])
        for measure in result["measures"]:
            low, high = wilson_interval(measure["top1"], measure["num_images"])
            name, protocol = escape(measure["name"]), escape(measure["protocol"])
            precision = f"<small>mAP {measure[MAP]:.2f}</small>" if MAP in measure else ""
            rows.append((
                f"{escape(MEASURES[measure['name']].title)} <code>{name}</code><small>{protocol}</small>",
                f"<b>{measure['top1']:.2f}</b><small>{low:.1f} – {high:.1f}</small>{precision}",
                "–" if measure["top5"] is None else f"{measure['top5']:.2f}",
                *(f"{measure[key]:.2f}" if key in measure else "–" for key in more),
                f"{measure['num_images']:,}<small>{escape(measure['split'])}</small>",
            ))  # fmt: skip
        lead = "Below each top-1 accuracy: its 95\u202f% interval for this number of images. Other seeds vary too."
        if more:
            lead += " Balanced: the mean over classes. Many, medium, few: over classes with more than 100, 20 to 100, "
            lead += "and fewer than 20 training images."
        heads = ("Measure", "Top-1, %", "Top-5, %", *(f"{key.capitalize()}, %" for key in more), "Images")
        shown = table("accuracies", heads, rows)
        parts.append(section("accuracy", "Accuracy", lead, shown))
    if retrieved := result.get("retrieval"):
        rows = [
            (
                f"{escape(measure.title)}<small>{escape(measure.meaning[0].upper() + measure.meaning[1:])}.</small>",
                *(f"{one['values'][key]:.2f}" if key in one["values"] else NOTHING for one in retrieved),
            )
            for key, measure in RETRIEVAL.items()
        ]
        groups = [
            f"{escape(one['name'].capitalize())} classes, %<small>{one['num_images']:,} images of "
            f"{one['num_classes']:,} classes</small>"
            for one in retrieved
        ]
        protocol = escape(retrieved[0]["protocol"])
        lead = f"How well the encoder finds images of the same class, by {protocol}."
        shown = table("accuracies", ("Measure", *groups), rows)
        parts.append(section("retrieval", "Retrieval", lead, shown))
    num_views = config["optim"]["batch_images"] * config["augment"]["views"]
    is_softmax = result["method"] in ("tcl", "supcon", "simclr") and not config["method"].get("cross_entropy")
    num_others = num_views - 1 if is_softmax else 0
    parts += [plots.curves([(metrics, style, ())], num_others=num_others), *images_parts]
    if skipped:
        name, reason = map(escape, skipped[0])
        lead = f"{plural(len(skipped), 'broken image')}, such as {name}, which {reason}."
        parts.append(section("skipped", "Left out", f"{lead} <code>skipped.json</code> lists all."))
    rows = []
    for part, values in config.items():
        for key, value in values.items():
            text = escape(as_text(value)).replace("/", "/<wbr>") or NOTHING
            rows.append((f"<code>{escape(part)}.{escape(key)}</code>", text))
    shown = table("pairs", ("Setting", "Value"), rows)
    folded = f"<details>\n<summary>All settings of the run</summary>\n{shown}\n</details>"
    rows = [
        ("Views per second", f"{result['views_per_second']:,.0f}"),
        ("Versions", escape(", ".join(map(" ".join, result["versions"].items())))),
        ("Revision", escape(result["git_revision"] or "an installed package, no checkout")),
        ("Finished", escape(result["finished"])),
        ("Command", f"<code>{escape(result.get('command', ''))}</code>"),
    ]
    parts.append(section("settings", "Settings and environment", "", folded, table("pairs", (), rows)))
    text = page("report", f"{style.title} on {data} · contune", "\n".join(parts))
    path.write_text(text, encoding="utf-8", newline="\n")
