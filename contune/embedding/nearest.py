"""The images most like others, by the cosine of their embeddings.

Shapes: Q queries, B images of a batch, D features.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from contune.data.broken import Broken, none_decoded
from contune.embedding.embeddings import Embedded, embed
from contune.embedding.table import Stored
from contune.errors import UserError
from contune.models.saved import ImageEncoder, load_encoder

MOST_QUERIES = 100


@dataclass(frozen=True)
class Hit:
    path: str
    label: str | None
    similarity: float


@dataclass(frozen=True)
class Found:
    """A query and the images most like it, the nearest first."""

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
    watch: Callable[[Embedded], None] = lambda part: None,
) -> list[Found]:
    """The `k` images most like each query, itself left out.

    `images` is a folder, a file or parquet, or the table of their embeddings that `contune embed` wrote, which need not
    be computed again; `query` is an image or a folder of a few. `watch` is given every batch that was compared, which
    says what could not be decoded.
    """
    if k < 1:
        raise UserError(f"k={k} asks for no image; take 1 or more")
    for name, place in (("images", images), ("query", query)):
        if not isinstance(place, str | Path):
            raise UserError(f"{name} must be a path, got a {type(place).__name__}; `contune.embed` takes lists too")
    encoder = load_encoder(run)
    queries = _queries(encoder, query, device)
    stored = Stored.open(Path(images).expanduser())
    best = _Best(queries, k, str if stored is None else stored.located)
    broken: list[Broken] = []
    for part in embed(encoder, images, device=device, workers=workers) if stored is None else stored.read(Path(run)):
        best.add(part)
        broken += part.broken
        watch(part)
    if not any(best.hits):
        raise _nothing_compared(str(images), best.num, broken)
    return [Found(name, hits) for name, hits in zip(queries.paths, best.hits, strict=True)]


def _nothing_compared(images: str, num: int, broken: list[Broken]) -> UserError:
    if num:
        return UserError(f"{images!r} holds no image but the query; give more to compare it with")
    return none_decoded(broken) if broken else UserError(f"{images!r} holds no embedding; give another table or images")


def _queries(encoder: ImageEncoder, query: str | Path, device: str) -> Embedded:
    paths: list[str] = []
    embeddings: list[np.ndarray] = []
    for part in embed(encoder, query, device=device, broken="stop", workers=1):
        paths += part.paths
        embeddings.append(part.embeddings)
        if len(paths) > MOST_QUERIES:
            raise UserError(f"{str(query)!r} holds more than {MOST_QUERIES} images; ask for fewer at a time")
    return Embedded(paths=paths, labels=[None] * len(paths), embeddings=np.concatenate(embeddings))


class _Best:
    """The nearest images so far; of equals the first. A query's own file is none of them, whatever path leads there."""

    def __init__(self, queries: Embedded, k: int, located: Callable[[str], str]) -> None:
        self.queries_QD, self.k, self.located = _unit(queries.embeddings), k, located
        self.files = [os.path.realpath(path) for path in queries.paths]
        self.hits: list[list[Hit]] = [[] for _ in queries.paths]
        self.num = 0

    def add(self, part: Embedded) -> None:
        self.num += len(part.paths)
        sim_QB = self.queries_QD @ _unit(part.embeddings).T
        for number, sim_B in enumerate(sim_QB):
            both = [*self.hits[number], *islice(self._nearer(number, part, sim_B), self.k)]
            self.hits[number] = sorted(both, key=lambda hit: -hit.similarity)[: self.k]

    def _nearer(self, number: int, part: Embedded, sim_B: np.ndarray) -> Iterator[Hit]:
        """Those that are nearer than the last so far, the nearest first."""
        hits = self.hits[number]
        last = hits[-1].similarity if len(hits) == self.k else -np.inf
        for index in np.argsort(-sim_B, kind="stable"):
            if sim_B[index] <= last:
                return
            path = self.located(part.paths[index])
            if os.path.realpath(path) != self.files[number]:
                yield Hit(path, part.labels[index], float(sim_B[index]))


def _unit(x_BD: np.ndarray) -> np.ndarray:
    lengths_B1 = np.linalg.norm(x_BD, axis=1, keepdims=True)
    unit_BD: np.ndarray = x_BD / np.maximum(lengths_B1, 1e-12)
    return unit_BD
