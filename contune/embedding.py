"""What a trained encoder is for: embed images, find the most similar ones, and predict classes.

Worker processes decode the images, the device encodes them, and only a few batches are in memory at any time.
Shapes: N images, B images of a batch, Q queries, C channels, S side, D features, K classes.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from itertools import chain, islice, starmap
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
import torch.nn.functional as F
from pyarrow.csv import write_csv

from contune.console import plural, progress
from contune.data import ImageSet
from contune.data.datasets import no_such_place
from contune.data.decode import Broken, BrokenImageError
from contune.data.folder import HIDDEN, JOINT, Rows, find_tables, folder_rows, path_as_text, read_rows
from contune.data.images import num_workers
from contune.data.memory import UNNAMED, open_memory
from contune.data.parquet import find_shards, label_of, names_in_metadata, read_schema, read_shards
from contune.device import choose_autocast, choose_device
from contune.errors import UserError, check_known
from contune.files import atomic_file, check_like, check_out, expanded, write_atomic
from contune.hub import local
from contune.models.saved import ENCODER_FILE, TIMM_FILE, ImageEncoder, evaluating, load_classifier, load_encoder
from contune.report.page import render, thumbnail

PREDICTION_COLUMNS = ("path", "label", "class", "probability")
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
"""A spreadsheet may run a cell that begins so; in a .csv such texts get a leading apostrophe."""
MOST_QUERIES = 100
_METADATA = "contune"

Pictures = Any
"""A folder with images at any depth, an image, a CSV that lists some, parquet; or data that `contune.train` takes: a
list of paths, PIL images or arrays (H, W, C), pixels, a torch or a Hugging Face dataset."""


class Source(NamedTuple):
    """Images with their labels as text, in a fixed order."""

    num: int
    parts: Iterable[tuple[ImageSet, list[list[str]]]]
    """Images and the labels of each. Parquet shards are read one after the other, each when its turn comes."""


def open_source(images: Pictures, label_column: str | None = None) -> Source:
    if not isinstance(images, str | Path):
        splits = open_memory(images, label_column)
        return Source(len(splits.train), [(splits.train, splits.train.label_names(splits.class_names))])
    path = expanded(images)
    if not os.path.lexists(path):
        raise no_such_place(str(images))
    tables = find_tables(path)
    shards = [] if tables else find_shards(path)
    if label_column is not None and not tables and not shards:
        raise UserError(f"the label column {label_column!r} is only for parquet and CSV; remove it")
    if shards:
        columns = [label_of(read_schema(shard), label_column, shard) for shard in shards]
        num = sum(int(pq.read_metadata(shard).num_rows) for shard in shards)
        source = Source(num, map(_read_shard, shards, columns))
    else:
        rows = Rows(ImageSet(images=[str(path)], names=[path_as_text(str(path))]), [[]], [""])
        if tables or path.is_dir():
            rows = read_rows(tables, label_column) if tables else folder_rows(path)
        source = Source(len(rows.images), [rows[:2]])
    if not source.num:
        raise UserError(f"{str(images)!r} holds no image, nor rows of a CSV or of parquet")
    return source


def _read_shard(shard: str, label: str | None) -> tuple[ImageSet, list[list[str]]]:
    """With labels as text, as training names the classes; none for a row without a label."""
    names = names_in_metadata(read_schema(shard), label)
    images, values = read_shards([shard], label)
    no_label = (None,) if names is None and any(value != HIDDEN for value in values) else (None, HIDDEN)
    known = dict(enumerate(names or ()))
    rows = [value if isinstance(value, list) else [value] for value in values]
    return images, [[known.get(part, str(part)) for part in row if part not in no_label] for row in rows]


@dataclass(frozen=True, kw_only=True)
class Embedded:
    """A batch of images with their embeddings."""

    paths: list[str]
    """File paths, or 'file.parquet#12' for row 12 of a parquet file."""
    labels: list[str | None]
    """The class folder or the label column, if there is one."""
    embeddings: np.ndarray
    """float32 (B, D): the encoder's features. L2-normalize them for cosine similarity."""
    broken: list[Broken] = field(default_factory=list)
    """Images that could not be decoded and have no embedding."""


def embed(
    run: str | Path | ImageEncoder,
    images: Pictures | Source,
    *,
    batch: int = 256,
    device: str = "auto",
    broken: str = "skip",
    workers: int | None = None,
    label_column: str | None = None,
) -> Iterator[Embedded]:
    """Embed a folder, an image, parquet, a list of paths or PIL images, pixels or a dataset, one batch at a time.

        for part in contune.embed("runs/photos", "photos/"):
            index.add(part.paths, part.embeddings)

    `run` is a run folder, or an encoder from `contune.load_encoder`, which moves to the device and keeps its mode.
    Images are prepared as in training. An image that cannot be decoded is listed in the `broken` of its batch, or
    raises with broken="stop". `workers` processes decode. [default: one per core] `label_column` chooses a column of a
    parquet file or of a Hugging Face dataset.
    """
    check_known("value for broken images", broken, ("stop", "skip"))
    if batch < 1:
        raise UserError(f"batch={batch} is not possible; use 1 or more")
    encoder = run if isinstance(run, ImageEncoder) else load_encoder(run)
    source = images if isinstance(images, Source) else open_source(images, label_column)
    return _embed(encoder, source, batch, choose_device(device), broken == "stop", num_workers(source.num, workers))


def _embed(
    encoder: ImageEncoder, source: Source, batch: int, device: torch.device, stop: bool, workers: int
) -> Iterator[Embedded]:
    spec, autocast = encoder.spec, choose_autocast("auto", device)

    def read(images: ImageSet, labels: list[list[str]]) -> Iterator[tuple[str, list[str], Any]]:
        images = images.as_seen_by(spec)
        pixels = images.decode_all(spec.image_size, spec.channels, workers=workers, stop=stop)
        return zip(images.names, labels, pixels, strict=True)

    encoder.to(device)
    rows = chain.from_iterable(starmap(read, source.parts))
    while part := list(islice(rows, min(batch, source.num))):
        good = [row for row in part if isinstance(row[2], np.ndarray)]
        embeddings_BD = np.empty((0, encoder.num_features), np.float32)
        if good:
            x_BCSS = torch.from_numpy(np.stack([x_CSS for _, _, x_CSS in good])).to(device)
            with torch.no_grad(), evaluating(encoder), autocast():
                embeddings_BD = encoder(x_BCSS).float().cpu().numpy()
        if not np.isfinite(embeddings_BD).all():
            raise UserError(f"features are not finite between {good[0][0]!r} and {good[-1][0]!r}; the encoder diverged")
        yield Embedded(
            paths=[name for name, _, _ in good],
            labels=[JOINT.join(labels) or None for _, labels, _ in good],
            embeddings=embeddings_BD,
            broken=[Broken(x.name, x.reason) for _, _, x in part if isinstance(x, BrokenImageError)],
        )


def none_decoded(broken: Sequence[Broken]) -> UserError:
    return UserError(f"no image can be decoded; the first, {broken[0].name!r}, {broken[0].reason}")


def write_embeddings(
    run: Path, images: str, out: Path, *, dtype: str = "float32", label_column: str | None = None, **options: Any
) -> tuple[int, int, list[Broken]]:
    """Write a parquet table with the columns path, label and embedding. It replaces only an earlier such table.

    The schema metadata `contune` names the encoder. `options` are those of `embed`. Returns the number of images and of
    features, and the broken images.
    """
    check_known("dtype", dtype, ("float32", "float16"))
    check_out(out, images, endings=[".parquet"])
    check_like(out, _METADATA, '"encoder"', "embedding")
    encoder, source = load_encoder(run), open_source(images, label_column)
    embedding = pa.list_(pa.from_numpy_dtype(dtype), encoder.num_features)
    about = {_METADATA: json.dumps({"encoder": encoder_digest(run), "spec": asdict(encoder.spec)})}
    schema = pa.schema({"path": pa.string(), "label": pa.string(), "embedding": embedding}, about)
    skipped: list[Broken] = []
    num = 0
    with (
        progress("embed", source.num, unit="image") as advance,
        atomic_file(out) as part_file,
        pq.ParquetWriter(part_file, schema) as writer,
    ):
        for part in embed(encoder, source, **options):
            with np.errstate(over="ignore"):
                values = part.embeddings.astype(dtype)
            if not np.isfinite(values).all():
                raise UserError(f"features up to {np.abs(part.embeddings).max():.3g} do not fit {dtype}; use float32")
            lists = pa.FixedSizeListArray.from_arrays(values.reshape(-1), encoder.num_features)
            writer.write_table(pa.table([part.paths, part.labels, lists], schema=schema))
            num, skipped = num + len(part.paths), skipped + part.broken
            advance(num + len(skipped), "")
        if not num:
            raise none_decoded(skipped)
    return num, encoder.num_features, skipped


def encoder_digest(run: Path) -> str:
    """Identifies the encoder: embeddings of two different encoders cannot be compared."""
    place = local(run)
    path = next(path for path in (place, place / ENCODER_FILE, place / TIMM_FILE) if path.is_file())
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def encoder_of(table: Path) -> str | None:
    """The digest of the encoder of a table that `write_embeddings` wrote; None if it is something else."""
    with suppress(pa.ArrowException, OSError, ValueError, KeyError, TypeError):
        return str(json.loads(pq.read_schema(table).metadata[_METADATA.encode()])["encoder"])
    return None


def read_embeddings(table: Path, run: Path) -> Iterator[Embedded]:
    if encoder_digest(run) != encoder_of(table):
        raise UserError(f"{table} is of another encoder than {run}; run `contune embed {run} IMAGES` again")
    with pq.ParquetFile(table, pre_buffer=False) as file:
        for rows in file.iter_batches(4096, columns=["path", "label", "embedding"]):
            column = rows["embedding"]
            embeddings_BD = column.flatten().to_numpy().reshape(len(rows), column.type.list_size).astype(np.float32)
            yield Embedded(paths=rows["path"].to_pylist(), labels=rows["label"].to_pylist(), embeddings=embeddings_BD)


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
    names = [f"query#{path.removeprefix(UNNAMED)}" if path.startswith(UNNAMED) else path for path in asked.paths]
    found = [Found(name, []) for name in names]
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
    values = {"found": found, "run": run, "images": images, "thumbnail_at": _picture}
    write_atomic(path, render("search.html", "search", f"Images most similar to {what}", **values))


def _picture(path: str) -> str:
    """The file, or the row of a parquet file; empty if there is none."""
    shard, _, row = path.rpartition("#")
    try:
        if not os.path.exists(path) and row.isdecimal() and os.path.exists(shard):
            images = read_shards([shard], None)[0].subset([int(row)])
        else:
            images = ImageSet(images=[path], names=[path])
        return thumbnail(images, 0, 0, path)
    except (UserError, IndexError):
        return ""


@dataclass(frozen=True, kw_only=True)
class Predicted:
    """A batch of images with the probability of each class."""

    paths: list[str]
    labels: list[str | None]
    """The class folder or the label column, if there is one; several labels are joined by '; '."""
    class_names: tuple[str, ...]
    probabilities: np.ndarray
    """float32 (B, K)"""
    broken: list[Broken]
    multilabel: bool = False
    """Whether an image may have several labels, each with its own probability."""

    @property
    def classes(self) -> list[str]:
        """The most probable class of each image; of several labels, the names of its `sets`, joined by '; '."""
        return [JOINT.join(labels) for labels in self.sets]

    @property
    def sets(self) -> list[dict[str, float]]:
        """The most probable class of each image; of several labels, those of 0.5 or more, the most probable first."""
        p_BK, names = self.probabilities, self.class_names
        if not self.multilabel:
            return [{names[k]: float(p_K[k])} for k, p_K in zip(p_BK.argmax(axis=1), p_BK, strict=True)]
        ranked = zip(np.argsort(-p_BK, axis=1, kind="stable"), p_BK, strict=True)
        return [{names[k]: float(p_K[k]) for k in rank_K if p_K[k] >= 0.5} for rank_K, p_K in ranked]

    def score(self) -> dict[str, Any] | None:
        """Compared with the labels, as an entry of result.json's `measures`; None if no label is a known class."""
        from contune.eval.evaluate import score

        position = {name: k for k, name in enumerate(self.class_names)}
        own = [(label or "").split(JOINT) if self.multilabel else [label] for label in self.labels]
        known = [[position[name] for name in names if name in position] for names in own]
        rows = [row for row, indices in enumerate(known) if indices]
        if not rows:
            return None
        labels_N = torch.tensor([known[row][0] for row in rows])
        if self.multilabel:
            labels_N = torch.zeros(len(rows), len(position))
            for number, row in enumerate(rows):
                labels_N[number, known[row]] = 1.0
        p_NK = torch.from_numpy(self.probabilities[rows])
        return score("classifier", p_NK, labels_N, self.class_names)


def predict(
    run: str | Path, images: Pictures | Source, *, encoder: ImageEncoder | None = None, **options: Any
) -> Iterator[Predicted]:
    """Predict the classes of images in any form that `contune.embed` takes, one batch at a time.

        for part in contune.predict("runs/photos", "new-photos/"):
            print(*zip(part.paths, part.classes))

    Cross-entropy trained its classifier with the encoder; other methods use the linear probe. `encoder` is that of the
    run if it is loaded already. `options` are those of `contune.embed`.
    """
    encoder, classifier = encoder or load_encoder(run), load_classifier(Path(run))
    return (
        Predicted(
            paths=part.paths,
            labels=part.labels,
            class_names=classifier.class_names,
            probabilities=classifier.probabilities(torch.from_numpy(part.embeddings)).numpy(),
            multilabel=classifier.multilabel,
            broken=part.broken,
        )
        for part in embed(encoder, images, **options)
    )


def write_predictions(
    run: Path, images: str, out: Path | None, *, label_column: str | None = None, **options: Any
) -> Predicted:
    """Predict all images, and write a .csv, .json or .parquet file. It replaces only an earlier file of predictions.

    `options` are those of `predict`.
    """
    if out is not None:
        check_out(out, images, endings=[".csv", ".json", ".parquet"])
        check_like(out, *PREDICTION_COLUMNS, "p(" if out.suffix.lower() == ".csv" else "probabilities")
    source = open_source(images, label_column)
    parts: list[Predicted] = []
    with progress("predict", source.num, unit="image") as advance:
        for part in predict(run, source, **options):
            parts.append(part)
            advance(sum(len(part.paths) + len(part.broken) for part in parts), "")
    everything = replace(
        parts[0],
        paths=[path for part in parts for path in part.paths],
        labels=[label for part in parts for label in part.labels],
        probabilities=np.concatenate([part.probabilities for part in parts]),
        broken=[broken for part in parts for broken in part.broken],
    )
    if not everything.paths:
        raise none_decoded(everything.broken)
    if out is not None:
        with atomic_file(out) as part_file:
            _write_predictions(everything, part_file, out.suffix.lower())
    return everything


def _write_predictions(found: Predicted, path: Path, suffix: str) -> None:
    """path, label, class and probability of each image, then the probabilities of all classes.

    With several labels per image, class and probability are lists, joined by '; ' in a .csv.
    """
    p_NK = found.probabilities
    texts: list[Sequence[str | None]] = [found.paths, found.labels, found.classes]
    if suffix == ".csv":
        texts = [[f"'{text}" if (text or "").startswith(FORMULA_STARTS) else text for text in row] for row in texts]
    if suffix != ".parquet":
        p_NK = p_NK.astype(np.float64).round(6)
    columns = [*(pa.array(column, pa.string()) for column in texts), p_NK.max(axis=1)]
    if found.multilabel:
        likely = [[round(p, 6) for p in labels.values()] for labels in found.sets]
        columns[3] = [JOINT.join(map(str, each)) for each in likely] if suffix == ".csv" else likely
        columns[2] = columns[2] if suffix == ".csv" else list(map(list, found.sets))
    table = pa.table(columns, names=PREDICTION_COLUMNS)
    if suffix == ".parquet":
        lists = pa.FixedSizeListArray.from_arrays(p_NK.reshape(-1), p_NK.shape[1])
        table = table.append_column("probabilities", lists)
        pq.write_table(table.replace_schema_metadata({"class_names": json.dumps(found.class_names)}), path)
    elif suffix == ".csv":
        names = [*PREDICTION_COLUMNS, *(f"p({name})" for name in found.class_names)]
        write_csv(pa.table([*table.columns, *p_NK.T], names=names), path)
    else:
        by_class = pa.StructArray.from_arrays(list(p_NK.T), found.class_names)
        rows = map(json.dumps, table.append_column("probabilities", by_class).to_pylist())
        path.write_text("[\n" + ",\n".join(rows) + "\n]\n", encoding="utf-8")
