"""report.html: a finished run on one page without network, server or JavaScript; and the parts every page is made of.

Whatever comes from outside (class names, paths, settings) goes through `escape`.
"""

import base64
import html
import shlex
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from importlib import resources
from io import BytesIO
from pathlib import Path
from string import Template
from typing import Any, Literal

import numpy as np
from PIL import Image
from torch import Tensor

from contune.console import plural
from contune.data.decode import Broken
from contune.data.images import ImageSet
from contune.eval.measures import CLASSIFIER, KNN, LINEAR, MAP, MEASURES, judged_by
from contune.report import wilson_interval

_GENERATOR = '<meta name="generator" content="contune {kind}">'
NOTHING = '<span class="none">–</span>'
MOST_SKIPPED = 500
THUMBNAIL_SIDE = 128
TINY_SIDE = 64
"""Images up to this side are shown pixel by pixel; larger ones are photos."""

Kind = Literal["report", "comparison", "search", "gradients", "experiment"]
"""What a page shows. A command overwrites only pages of its own kind."""


def escape(value: object) -> str:
    """Text that is safe between tags and inside quotes. File names may contain bytes that are no text."""
    shown = (c if c.isprintable() else " " if c.isspace() else "\N{REPLACEMENT CHARACTER}" for c in str(value))
    return html.escape("".join(shown))


def shorten(text: str, length: int) -> str:
    """The last `length` characters at most, where paths differ."""
    return text if len(text) <= length else "…" + text[len(text) - length + 1 :]


def duration(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def page(kind: Kind, title: str, body: str) -> str:
    """A whole page; `body` is HTML."""
    folder, generator = resources.files("contune.report"), _GENERATOR.format(kind=kind)
    style, template = folder.joinpath("page.css").read_text("utf-8"), folder.joinpath("page.html").read_text("utf-8")
    return Template(template).substitute(title=escape(title), generator=generator, style=style, body=body)


def is_page(path: Path, kind: Kind) -> bool:
    """Whether `page` wrote this file, of this kind."""
    with path.open(encoding="utf-8") as file:
        return _GENERATOR.format(kind=kind) in file.read(512)  # the head holds it


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


def folded(summary: str, content: str) -> str:
    """Content that a click opens. Both are HTML."""
    return f"<details>\n<summary>{summary}</summary>\n{content}\n</details>"


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


def setting_text(value: Any) -> str:
    """The value of a setting as `contune train` takes it; empty if it is not set."""
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    if isinstance(value, float):
        return f"{value:.12g}"
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def thumbnail(images: ImageSet, index: int, channels: int, description: str) -> str:
    """An <img>. `description` is its alternative text, already escaped."""
    x_CHW = images.decode(index, None, channels)
    picture = Image.fromarray(x_CHW[0] if channels == 1 else np.ascontiguousarray(x_CHW.transpose(1, 2, 0)))
    tiny = max(picture.size) <= TINY_SIDE
    out = BytesIO()
    if tiny:
        picture.save(out, format="PNG", optimize=True)
    else:  # a photo as PNG takes four times the space for no visible gain
        picture.thumbnail((THUMBNAIL_SIDE, THUMBNAIL_SIDE), Image.Resampling.LANCZOS)
        picture.save(out, format="JPEG", quality=85)
    kind, look = ("png", ' class="tiny"') if tiny else ("jpeg", "")
    data = base64.b64encode(out.getvalue()).decode()
    return f'<img{look} src="data:image/{kind};base64,{data}" alt="{description}">'


def data_title(name: str, path: str | None) -> str:
    """What people call the data: `images` says nothing about a person's own folder, but its name does."""
    return Path(path).name or path if name == "images" and path else name


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

    data = data_title(result["data"], config["data"]["path"])
    by_name = {measure["name"]: measure for measure in result["measures"]}
    # The header: what was trained on what, and how good it is.
    cards, first = [], None
    for column in (LINEAR, CLASSIFIER, KNN):
        measure = judged_by(result, column)
        if measure is None:
            continue
        first, about, pixels = first or measure, MEASURES[measure["name"]], ""
        if about.baseline in by_name:
            top1 = by_name[about.baseline]["top1"]
            gain = f"{measure['top1'] - top1:+.1f}".replace("-", "−")
            pixels = f'<p>raw pixels {top1:.1f}\u202f% <span class="gain">{gain} points</span></p>'
        cards.append(f"""<li class="card">
<p class="what">{about.title}</p>
<p class="number">{measure["top1"]:.1f}<span>\u202f%</span></p>
{pixels}
<p class="meaning">{about.meaning[0].upper()}{about.meaning[1:]}.</p>
</li>""")
    if images is not None and images.labels is not None and images.labels.dim() == 2:
        images = replace(images, labels=None)  # classes and mistakes are of images with one label
    split, labels_M, note = escape(result["split"]), None if images is None else images.labels, ""
    if images is None or features_MD is None or not len(images):
        why = f"There is no {split} split. Hold some images out with <code>data.{split}_fraction=0.2</code>."
        images_parts = [section("images", "Classes, map and neighbors", "", missing(why))]
    else:
        why = "No accuracy was measured." if labels_M is not None else "These images have no labels."
        evaluated = plots.Evaluated(images, channels, class_names, features_MD, predicted_M, predicted_by)
        images_parts = [plots.embedding_map(evaluated), plots.neighbors(evaluated)]
        if labels_M is not None and first is not None:
            images_parts.insert(0, plots.classes(evaluated, first))
    if first is not None:
        note = f"Accuracy on {first['num_images']:,} {escape(first['split'])} images that were not trained on."
        if labels_M is not None:
            majority = 100 * int(labels_M.bincount().max()) / len(labels_M)
            note += f" The most frequent class has {majority:.1f}\u202f% of them."
    facts = [
        f"<strong>{escape(result['encoder'])}</strong> encoder",
        plural(int(result["epochs"]), "epoch"),
        f"{duration(result['seconds'])} on {escape(result['hardware'])}",
        f"seed {escape(result['seed'])}",
    ]
    shown = f'<ul class="cards">\n{chr(10).join(cards)}\n</ul>\n<p class="lead">{note}</p>' if cards else missing(why)
    style = method_style(result["method"])
    parts = [header("training report", f"{escape(style.title)} <span>on</span> {escape(data)}", facts, shown)]
    if result["measures"]:
        rows: list[tuple[str, ...]] = []
        for measure in result["measures"]:
            low, high = wilson_interval(measure["top1"], measure["num_images"])
            name, protocol = escape(measure["name"]), escape(measure["protocol"])
            precision = f"<small>mAP {measure[MAP]:.2f}</small>" if MAP in measure else ""
            rows.append((
                f"{escape(MEASURES[measure['name']].title)} <code>{name}</code><small>{protocol}</small>",
                f"<b>{measure['top1']:.2f}</b><small>{low:.1f} – {high:.1f}</small>{precision}",
                "–" if measure["top5"] is None else f"{measure['top5']:.2f}",
                f"{measure['num_images']:,}<small>{escape(measure['split'])}</small>",
            ))  # fmt: skip
        lead = "Below each top-1 accuracy: its 95\u202f% interval for this number of images. Other seeds vary too."
        shown = table("accuracies", ("Measure", "Top-1, %", "Top-5, %", "Images"), rows)
        parts.append(section("accuracy", "Accuracy", lead, shown))
    parts += [plots.curves([(metrics, style, ())], [plots.num_others(config)]), *images_parts]
    if skipped:
        lead = f"These images could not be decoded. <code>skipped.json</code> lists all, this page {MOST_SKIPPED}."
        rows = [
            (f'<span title="{escape(name)}">{escape(shorten(name, 60))}</span>', escape(reason))
            for name, reason in skipped[:MOST_SKIPPED]
        ]
        shown = folded(plural(len(skipped), "broken image"), table("pairs files", ("File", "What is wrong"), rows))
        parts.append(section("skipped", "Left out", lead, shown))
    rows = []
    for part, values in config.items():
        for key, value in values.items():
            text = escape(setting_text(value)).replace("/", "/<wbr>") or NOTHING
            rows.append((f"<code>{escape(part)}.{escape(key)}</code>", text))
    shown = folded("All settings of the run", table("pairs", ("Setting", "Value"), rows))
    rows = [
        ("Views per second", f"{result['views_per_second']:,.0f}"),
        ("Versions", escape(", ".join(map(" ".join, result["versions"].items())))),
        ("Revision", escape(result["git_revision"] or "an installed package, no checkout")),
        ("Finished", escape(result["finished"])),
    ]
    parts.append(section("settings", "Settings and environment", "", shown, table("pairs", (), rows)))
    run = shlex.quote(str(path.parent)) if (path.parent / "config.json").exists() else "RUN"
    commands = {
        "Repeat this run": result.get("command", ""),
        "Embed your images": f"contune embed {run} photos/ --out photos.parquet",
        "Find similar images": f"contune search {run} photos.parquet query.jpg --out similar.html",
        "Export the encoder": f"contune export {run} --to onnx",
        "Compare with another run": f"contune report {run} OTHER_RUN",
    }
    rows = [(what, f"<code>{escape(command)}</code>") for what, command in commands.items() if command]
    parts.append(section("next", "Next steps", "", table("pairs", (), rows)))
    text = page("report", f"{style.title} on {data} · contune", "\n".join(parts))
    path.write_text(text, encoding="utf-8", newline="\n")
