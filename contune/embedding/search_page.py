"""What a search found, with pictures, on one page that needs no network."""

import os
from collections.abc import Sequence
from pathlib import Path

from contune.console import plural
from contune.data.broken import BrokenImageError
from contune.data.images import EncodedImages
from contune.data.imageset import ImageSet
from contune.embedding.nearest import Found, Hit
from contune.embedding.parquet_source import row_item
from contune.errors import UserError
from contune.files import write_whole
from contune.report.page import escape, page, shorten_path, thumbnail

_LONGEST = 28


def write_search_page(path: Path, found: Sequence[Found], *, run: str, images: str, num: int) -> None:
    """`num` images were searched."""
    text = (
        f"The most similar of {plural(num, 'image')} in <code>{escape(images)}</code>, by the cosine of their "
        "embeddings, which is 1 for the same picture."
    )
    header = f"""<header>
<p class="brand">contune <span>search</span></p>
<h1>{plural(len(found), "query").replace("querys", "queries")} <span>by</span> {escape(Path(run).name or run)}</h1>
<p class="facts">{text}</p>
</header>"""
    body = "\n".join([header, '<div class="searches">', *map(_card, found), "</div>"])
    write_whole(path, page("search", f"search by {Path(run).name or run} · contune", body))


def _card(found: Found) -> str:
    items = "\n".join(map(_item, found.hits))
    name = escape(found.query)
    return f"""<section class="search" aria-label="{name}">
<figure class="asked">{_picture(found.query, name)}
<figcaption title="{name}">{_short(found.query)}</figcaption></figure>
<ol>
{items}
</ol>
</section>"""


def _item(hit: Hit) -> str:
    name = escape(hit.path)
    label = "" if hit.label is None else f"<b>{escape(hit.label)}</b> "
    return (
        f'<li title="{name}"><figure>{_picture(hit.path, name)}'
        f"<figcaption>{label}{hit.similarity:.3f}<small>{_short(hit.path)}</small></figcaption></figure></li>"
    )


def _picture(path: str, description: str) -> str:
    try:
        images = EncodedImages([_content(path)], [path])
        return thumbnail(ImageSet(images=images, labels=None, names=[path]), 0, 3, description)
    except (BrokenImageError, UserError):
        return '<p class="missing">no picture there</p>'


def _content(path: str) -> str | bytes:
    shard, _, row = path.rpartition("#")
    if os.path.exists(path) or not row.isdecimal() or not os.path.exists(shard):
        return path
    item = row_item(shard, int(row))
    return path if item is None else item.content


def _short(path: str) -> str:
    return escape(shorten_path(path, _LONGEST))
