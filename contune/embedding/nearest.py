"""The images most like others, by the cosine of their embeddings.

Shapes: Q queries, B images of a batch, N best so far, D features.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

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
    advance: Callable[[int], None] = lambda done: None,
) -> list[Found]:
    """The `k` images most like each query, itself left out.

    `images` is a folder, a file or parquet, or the table of their embeddings that `contune embed` wrote, which need not
    be computed again; `query` is an image or a folder of a few.
    """
    if k < 1:
        raise UserError(f"k={k} asks for no image; take 1 or more")
    encoder = load_encoder(run)
    queries = _queries(encoder, query, device)
    stored = Stored.open(Path(images).expanduser())
    best = _Best(queries.embeddings, k + 1)
    done = 0
    for part in embed(encoder, images, device=device, workers=workers) if stored is None else stored.read(Path(run)):
        best.add(part)
        done += part.num_seen
        advance(done)
    found: list[Found] = []
    for number, name in enumerate(queries.paths):
        hits = [hit if stored is None else replace(hit, path=stored.located(hit.path)) for hit in best.hits(number)]
        found.append(Found(name, [hit for hit in hits if os.path.realpath(hit.path) != os.path.realpath(name)][:k]))
    return found


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
    """The nearest images so far; of equals the first."""

    def __init__(self, queries_QD: np.ndarray, num: int) -> None:
        self.queries_QD, self.num = _unit(queries_QD), num
        self.sim_QN = np.empty((len(queries_QD), 0), np.float32)
        self.rows_QN: list[list[tuple[str, str | None]]] = [[] for _ in queries_QD]

    def add(self, part: Embedded) -> None:
        if not len(part.embeddings):
            return
        sim_QX = np.concatenate([self.sim_QN, self.queries_QD @ _unit(part.embeddings).T], axis=1)
        order_QN = np.argsort(-sim_QX, axis=1, kind="stable")[:, : self.num]
        self.sim_QN = np.take_along_axis(sim_QX, order_QN, axis=1)
        for number, (rows, order) in enumerate(zip(self.rows_QN, order_QN.tolist(), strict=True)):
            new = [
                (part.paths[i - len(rows)], part.labels[i - len(rows)]) if i >= len(rows) else rows[i] for i in order
            ]
            self.rows_QN[number] = new

    def hits(self, query: int) -> list[Hit]:
        rows, similarities = self.rows_QN[query], self.sim_QN[query].tolist()
        return [Hit(path, label, cosine) for (path, label), cosine in zip(rows, similarities, strict=True)]


def _unit(x_BD: np.ndarray) -> np.ndarray:
    lengths_B1 = np.linalg.norm(x_BD, axis=1, keepdims=True)
    unit_BD: np.ndarray = x_BD / np.maximum(lengths_B1, 1e-12)
    return unit_BD
