"""Find the images most similar to others, by the cosine of their embeddings.

Shapes: Q queries, B images of a batch, D features.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from contune.console import plural, progress
from contune.data import EncodedImages, ImageSet
from contune.data.decode import Broken
from contune.data.parquet import Spool, read_shard
from contune.embedding import Embedded, Stored, embed, none_decoded, open_source
from contune.errors import UserError
from contune.files import write_atomic
from contune.models.saved import ImageEncoder, load_encoder
from contune.report.page import escape, page, shorten, thumbnail

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
    images: str | Path,
    query: str | Path,
    *,
    k: int = 10,
    device: str = "auto",
    workers: int | None = None,
    watch: Callable[[Embedded], None] | None = None,
) -> list[Found]:
    """The `k` images most similar to each query, without the query itself.

    `images` is a folder, a file or parquet, or a table of embeddings that `contune embed` wrote. `query` is an image or
    a folder of a few. `watch` is called with every batch, which lists images that could not be decoded.
    """
    if k < 1:
        raise UserError(f"k={k} is not possible; use 1 or more")
    for name, place in (("images", images), ("query", query)):
        if not isinstance(place, str | Path):
            raise UserError(f"{name} must be a path, got a {type(place).__name__}")
    encoder = load_encoder(run)
    queries = _embed_queries(encoder, query, device)
    stored = Stored.open(Path(images).expanduser())
    if stored is None:
        source = open_source(images)
        total, parts = source.num, embed(encoder, source, device=device, workers=workers)
    else:
        total, parts = int(pq.read_metadata(stored.path).num_rows), stored.read(Path(run))
    nearest = Nearest(queries, k, str if stored is None else stored.located)
    skipped: list[Broken] = []
    with progress("search", total, unit="images") as advance:
        for part in parts:
            nearest.add(part)
            skipped += part.broken
            if watch is not None:
                watch(part)
            advance(nearest.num + len(skipped), "")
    if not any(nearest.hits):
        if nearest.num:
            raise UserError(f"{str(images)!r} holds no image but the query; add more to compare it with")
        raise none_decoded(skipped) if skipped else UserError(f"{str(images)!r} holds no embedding; use another table")
    return [Found(name, hits) for name, hits in zip(queries.paths, nearest.hits, strict=True)]


def _embed_queries(encoder: ImageEncoder, query: str | Path, device: str) -> Embedded:
    source = open_source(query)
    if source.num > MOST_QUERIES:
        raise UserError(f"{str(query)!r} holds more than {MOST_QUERIES} images; search for fewer at a time")
    (queries,) = embed(encoder, source, device=device, broken="stop")
    return queries


class Nearest:
    """The nearest images so far; of equals the first. Skips the query's own file, whatever path leads there."""

    def __init__(self, queries: Embedded, k: int, located: Callable[[str], str]) -> None:
        self.queries_QD, self.k, self.located = _unit(queries.embeddings), k, located
        self.files = [os.path.realpath(path) for path in queries.paths]
        self.hits: list[list[Hit]] = [[] for _ in queries.paths]
        self.num = 0

    def add(self, part: Embedded) -> None:
        self.num += len(part.paths)
        sim_QB = self.queries_QD @ _unit(part.embeddings).T
        for number, sim_B in enumerate(sim_QB):
            hits = self.hits[number]
            last = hits[-1].similarity if len(hits) == self.k else -np.inf
            new: list[Hit] = []
            for index in np.argsort(-sim_B, kind="stable"):
                if sim_B[index] <= last or len(new) == self.k:
                    break
                path = self.located(part.paths[index])
                if os.path.realpath(path) != self.files[number]:
                    new.append(Hit(path, part.labels[index], float(sim_B[index])))
            self.hits[number] = sorted([*hits, *new], key=lambda hit: -hit.similarity)[: self.k]


def _unit(x_BD: np.ndarray) -> np.ndarray:
    unit_BD: np.ndarray = x_BD / np.maximum(np.linalg.norm(x_BD, axis=1, keepdims=True), 1e-12)
    return unit_BD


def write_search_page(path: Path, found: Sequence[Found], *, run: str, images: str) -> None:
    """One HTML page with the pictures, which needs no network."""
    name = escape(Path(run).name or run)
    cards = "\n".join(map(_card, found))
    body = f"""<header>
<p class="brand">contune <span>search</span></p>
<h1>{plural(len(found), "search", "es")} <span>by</span> {name}</h1>
<p class="facts">The most similar images in <code>{escape(images)}</code>, by the cosine of their embeddings,
which is 1 for the same picture.</p>
</header>
<div class="searches">
{cards}
</div>"""
    write_atomic(path, page("search", f"search by {Path(run).name or run} · contune", body))


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
            images = read_shard(shard, None, Spool())[0].pick(np.array([int(row)]))
        else:
            images = EncodedImages([path], [path])
        return thumbnail(ImageSet(images=images, labels=None, names=[path]), 0, 3, escape(path))
    except (UserError, IndexError):
        return '<p class="missing">no picture there</p>'
