"""Find the images most similar to others, by the cosine of their embeddings.

Shapes: Q queries, B images of a batch, D features.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import torch
import torch.nn.functional as F

from contune.console import plural, progress
from contune.data import ImageSet
from contune.data.decode import Broken
from contune.data.memory import UNNAMED
from contune.data.parquet import read_shards
from contune.embedding import Embedded, Pictures, embed, encoder_of, none_decoded, open_source, read_embeddings
from contune.errors import UserError
from contune.files import expanded, write_atomic
from contune.models.saved import ImageEncoder, load_encoder
from contune.report.page import escape, header, page, shorten, thumbnail

MOST_QUERIES = 100
_LONGEST = 28


@dataclass(frozen=True)
class Hit:
    path: str
    label: str | None
    similarity: float


@dataclass(frozen=True)
class Found:
    """A query and the images most similar to it, the nearest first."""

    query: str
    hits: list[Hit]


def search(
    run: str | Path,
    images: Pictures,
    query: Pictures,
    *,
    k: int = 10,
    device: str = "auto",
    workers: int | None = None,
    skipped: list[Broken] | None = None,
    encoder: ImageEncoder | None = None,
) -> list[Found]:
    """The `k` images most similar to each query, of equals the first, without the query's own file.

    `images` is a table of embeddings that `contune embed` wrote, or images in any form that `contune.embed` takes.
    `query` is an image, a folder of a few, or a few images in memory. Images that could not be decoded are added to
    `skipped`. `encoder` is that of the run if it is loaded already.
    """
    if k < 1:
        raise UserError(f"k={k} is not possible; use 1 or more")
    encoder = encoder or load_encoder(run)
    queries, skipped = open_source(query), [] if skipped is None else skipped
    if queries.num > MOST_QUERIES:
        raise UserError(f"{str(query)!r} holds more than {MOST_QUERIES} images; search for fewer at a time")
    (asked,) = embed(encoder, queries, device=device, broken="stop")
    asked_QD = F.normalize(torch.from_numpy(asked.embeddings), dim=1)
    place = expanded(images) if isinstance(images, str | Path) else None
    if place is None or encoder_of(place) is None:
        source = open_source(images)
        total, parts = source.num, embed(encoder, source, device=device, workers=workers)
    else:
        total, parts = int(pq.read_metadata(place).num_rows), read_embeddings(place, Path(run))
    k, num = min(k, max(total, 1)), 0
    # Images in memory are numbered, and the query is none of those it is compared with.
    found = [Found(f"query {path}" if path.startswith(UNNAMED) else path, []) for path in asked.paths]
    with progress("search", total, unit="image") as advance:
        for part in parts:
            num += len(part.paths)
            skipped += part.broken
            sim_QB = asked_QD @ F.normalize(torch.from_numpy(part.embeddings), dim=1).T
            add_hits(found, sim_QB.numpy(), part, k)
            advance(num + len(skipped), "")
    if skipped and not num:
        raise none_decoded(skipped)
    if not any(one.hits for one in found):
        raise UserError(f"{str(images)!r} holds no image but the query; add more to compare it with")
    return found


def add_hits(found: Sequence[Found], sim_QB: np.ndarray, part: Embedded, k: int) -> None:
    """Keep the `k` nearest of those found before and this part. A query's own file is skipped by whatever path."""
    for one, sim_B in zip(found, sim_QB, strict=True):
        file = os.path.realpath(one.query)
        last = one.hits[-1].similarity if len(one.hits) == k else -np.inf
        nearer = (index for index in np.argsort(-sim_B, kind="stable") if sim_B[index] > last)
        hits = (Hit(part.paths[index], part.labels[index], float(sim_B[index])) for index in nearer)
        new = islice((hit for hit in hits if os.path.realpath(hit.path) != file), k)
        one.hits[:] = sorted([*one.hits, *new], key=lambda hit: -hit.similarity)[:k]


def write_search_page(path: Path, found: Sequence[Found], *, run: str, images: str) -> None:
    """One HTML page with the pictures, which needs no network."""
    what = found[0].query if len(found) == 1 else plural(len(found), "image")
    title = f"Images most similar to {what}"
    facts = [f"found in <code>{escape(images)}</code>", f"encoder <code>{escape(run)}</code>"]
    facts.append("numbers: cosine similarity, 1 for the same picture")
    body = [header("search", escape(title), facts), '<div class="searches">', *map(_card, found), "</div>"]
    write_atomic(path, page("search", f"{title} · contune", "\n".join(body)))


def _card(found: Found) -> str:
    name = escape(found.query)
    items = "\n".join(
        f'<li title="{escape(hit.path)}"><figure>{_picture(hit.path)}<figcaption>'
        f"{'' if hit.label is None else f'<b>{escape(hit.label)}</b> '}{hit.similarity:.3f}"
        f"<small>{escape(shorten(hit.path, _LONGEST))}</small></figcaption></figure></li>"
        for hit in found.hits
    )
    return f"""<section class="search" aria-label="{name}">
<figure class="asked">{_picture(found.query)}
<figcaption title="{name}">{escape(shorten(found.query, _LONGEST))}</figcaption></figure>
<ol>
{items}
</ol>
</section>"""


def _picture(path: str) -> str:
    """The file, or the row of a parquet file."""
    shard, _, row = path.rpartition("#")
    try:
        if not os.path.exists(path) and row.isdecimal() and os.path.exists(shard):
            images = read_shards([shard], None)[0].subset([int(row)])
        else:
            images = ImageSet(images=[path], names=[path])
        return thumbnail(images, 0, 0, escape(path))
    except (UserError, IndexError):
        return '<p class="missing">no picture there</p>'
