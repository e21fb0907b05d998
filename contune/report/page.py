"""report.html: a finished run on one page without network, server or JavaScript; and the parts every page is made of.

Whatever comes from outside (class names, paths, settings) goes through `escape`.
"""

import base64
import html
from collections.abc import Collection, Iterable, Sequence
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
from contune.eval.measures import CLASSIFIER, KNN, LINEAR, MEASURES, judged_by
from contune.report.statistics import wilson_interval

_GENERATOR = '<meta name="generator" content="contune {kind}">'
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
    """The first `length` characters at most."""
    return text if len(text) <= length else text[: length - 1].rstrip() + "…"


def shorten_path(path: str, length: int) -> str:
    """The last `length` characters at most, where paths differ."""
    return path if len(path) <= length else "…" + path[len(path) - length + 1 :]


def duration(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def page(kind: Kind, title: str, body: str) -> str:
    """A whole page; `body` is HTML."""
    template, style = (
        resources.files("contune.report").joinpath(n).read_text("utf-8") for n in ("page.html", "page.css")
    )
    generator = _GENERATOR.format(kind=kind)
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
    body = "\n".join(part for part in (f'<p class="lead">{lead}</p>' if lead else "", *parts) if part)
    return (
        f'<section id="{name}" aria-labelledby="{name}-title">\n<h2 id="{name}-title">{title}</h2>\n{body}\n</section>'
    )


def missing(why: str) -> str:
    """In place of a part that this run cannot have; `why` is HTML."""
    return f'<p class="missing">{why}</p>'


def table(look: str, heads: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Collection[int] = ()) -> str:
    """A table of HTML cells whose first column heads the rows. The columns in `numbers` are right-aligned."""

    def attributes(column: int) -> str:
        return ' class="number-cell"' if column in numbers else ""

    head = "".join(f'<th scope="col"{attributes(column)}>{text}</th>' for column, text in enumerate(heads))
    body = "\n".join(
        f'<tr><th scope="row">{first}</th>'
        + "".join(f"<td{attributes(column)}>{cell}</td>" for column, cell in enumerate(cells, start=1))
        + "</tr>"
        for first, *cells in rows
    )
    thead = f"<thead><tr>{head}</tr></thead>\n" if heads else ""
    return f'<table class="{look}">\n{thead}<tbody>\n{body}\n</tbody>\n</table>'


def setting_text(value: Any) -> str:
    """The value of a setting as `contune train` takes it; empty if it is not set."""
    if value is None or value == [] or value == ():
        return ""
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return (
        str(value).lower() if isinstance(value, bool) else f"{value:.12g}" if isinstance(value, float) else str(value)
    )


def setting(value: Any) -> str:
    """The value of a setting as HTML."""
    return escape(setting_text(value)).replace("/", "/<wbr>") or '<span class="none">–</span>'


def thumbnail(images: ImageSet, index: int, channels: int, description: str) -> str:
    """An <img>. `description` is its alternative text, already escaped."""
    x_CHW = images.images.decode(index, None, channels)
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
    from contune.report.style import METHOD_STYLES

    evaluated = None
    if images is not None and features_MD is not None and len(images):
        evaluated = plots.Evaluated(images, channels, class_names, features_MD, predicted_M, predicted_by)
    split, data = escape(result["split"]), data_title(result["data"], config.get("data", {}).get("path"))
    measure = next(filter(None, (judged_by(result, column) for column in (LINEAR, CLASSIFIER, KNN))), None)
    if evaluated is None:
        why = f"There is no {split} split. Hold some images out with <code>data.{split}_fraction=0.2</code>."
        images_parts = [section("images", "Classes, map and neighbors", "", missing(why))]
    else:
        why = "No accuracy was measured." if evaluated.labels is not None else "These images have no labels."
        images_parts = [plots.embedding_map(evaluated), plots.neighbors(evaluated)]
        if evaluated.labels is not None and measure is not None:
            images_parts = [plots.confusions(evaluated), plots.per_class(evaluated, measure), *images_parts]
    parts = [_headline(result, data, why, None if evaluated is None else evaluated.labels)]
    if result["measures"]:
        heads = ("Measure", "Top-1, %", "Top-5, %", "Images")
        lead = "Below each top-1 accuracy: its 95\u202f% interval for this number of images. Other seeds vary too."
        shown = table("accuracies", heads, map(_measure_row, result["measures"]))
        parts.append(section("accuracy", "Accuracy", lead, shown))
    style = METHOD_STYLES.get(result["method"], METHOD_STYLES["tcl"])
    parts += [plots.curves([plots.Logged(metrics, style)]), *images_parts]
    if skipped:
        rows = [
            (f'<span title="{escape(name)}">{escape(shorten_path(name, 60))}</span>', escape(reason))
            for name, reason in skipped[:MOST_SKIPPED]
        ]
        lead = (
            f"These images could not be decoded. <code>skipped.json</code> lists all, this page {MOST_SKIPPED} at most."
        )
        shown = table("pairs files", ("File", "What is wrong"), rows)
        summary = f"<summary>{plural(len(skipped), 'broken image')}</summary>"
        parts.append(section("skipped", "Left out", lead, "<details>", summary, shown, "</details>"))
    flat = {f"{part}.{key}": value for part, values in config.items() for key, value in values.items()}
    rows = [(f"<code>{escape(key)}</code>", setting(value)) for key, value in flat.items()]
    shown, summary = table("pairs", ("Setting", "Value"), rows), "<summary>All settings of the run</summary>"
    parts.append(section("settings", "Settings", "", "<details>", summary, shown, "</details>"))
    facts = {
        "Hardware": result["hardware"],
        "Training time": duration(result["seconds"]),
        "Views per second": f"{result['views_per_second']:,.0f}",
        "Seed": result["seed"],
        "Versions": ", ".join(f"{name} {version}" for name, version in result["versions"].items()),
        "Revision": result["git_revision"] or "an installed package, no checkout",
        "Finished": result["finished"],
    }
    rows = [(name, escape(value)) for name, value in facts.items()]
    parts.append(section("environment", "Environment", "", table("pairs", (), rows)))
    text = page("report", f"{result['method']} on {data} · contune", "\n".join(parts))
    path.write_text(text, encoding="utf-8", newline="\n")


def _headline(result: dict[str, Any], data: str, why_missing: str, labels_M: Tensor | None) -> str:
    """What was trained on what, and how good it is."""
    measures = {measure["name"]: measure for measure in result["measures"]}
    cards, note = [], ""
    for measure in (judged_by(result, column) for column in (LINEAR, CLASSIFIER, KNN)):
        if measure is None:
            continue
        about, pixels = MEASURES[measure["name"]], ""
        baseline = measures.get(about.baseline or "")
        if baseline is not None:
            gain = f"{measure['top1'] - baseline['top1']:+.1f}".replace("-", "−")
            pixels = f"""<p class="beside">raw pixels {baseline["top1"]:.1f}\u202f% \
<span class="gain">{gain} points</span></p>"""
        cards.append(f"""<li class="card">
<p class="what">{about.title}</p>
<p class="number">{measure["top1"]:.1f}<span>\u202f%</span></p>
{pixels}
<p class="meaning">{about.meaning[0].upper()}{about.meaning[1:]}.</p>
</li>""")
    if cards:
        first = result["measures"][0]
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
    return header(
        "training report",
        f"{escape(result['method'])} <span>on</span> {escape(data)}",
        facts,
        f'<ul class="cards">\n{chr(10).join(cards)}\n</ul>' if cards else missing(why_missing),
        f'<p class="lead">{note}</p>' if note else "",
    )


def _measure_row(measure: dict[str, Any]) -> tuple[str, ...]:
    low, high = wilson_interval(measure["top1"], measure["num_images"])
    title = escape(MEASURES[measure["name"]].title)
    return (
        f"{title} <code>{escape(measure['name'])}</code><small>{escape(measure['protocol'])}</small>",
        f"<b>{measure['top1']:.2f}</b><small>{low:.1f} – {high:.1f}</small>",
        "–" if measure["top5"] is None else f"{measure['top5']:.2f}",
        f"{measure['num_images']:,}<small>{escape(measure['split'])}</small>",
    )
