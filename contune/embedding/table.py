"""Embeddings as a parquet table: written while they are computed, and read again a row group at a time."""

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from contune.data.broken import Broken, none_decoded
from contune.embedding.embeddings import BATCH, Embedded, embed
from contune.embedding.parts import Parts
from contune.embedding.source import Images, open_source
from contune.errors import UserError, unknown
from contune.files import check_like
from contune.models.saved import ENCODER_FILE, load_encoder

KINDS = {"float32": (np.float32, pa.float32()), "float16": (np.float16, pa.float16())}
IMAGES_PER_PART = 8192
_METADATA = b"contune"


@dataclass(frozen=True, kw_only=True)
class Written:
    """What a finished table is, and where the time of this call went."""

    num: int
    num_features: int
    num_before: int
    """Images that an earlier call had done."""
    broken: list[Broken]
    seconds: float
    waited: float
    encoded: float


def write_embeddings(
    run: Path,
    images: Images,
    out: Path,
    *,
    kind: str = "float32",
    batch: int = BATCH,
    device: str = "auto",
    broken: str = "skip",
    workers: int | None = None,
    advance: Callable[[int, int, float], None] = lambda done, total, per_second: None,
) -> Written:
    """All embeddings of `images` into the table `out`; goes on where a call that was stopped left off.

    A finished table is replaced, a file that is none left alone. Columns: path, label (where known), embedding. The
    metadata `contune` says which encoder made them.
    """
    if kind not in KINDS:
        raise unknown("type of numbers", kind, KINDS)
    encoder, source = load_encoder(run), open_source(images)
    check_like(out, is_table)
    digest = encoder_digest(run)
    parts = Parts(out, {"encoder": digest, "images": source.identity(), "type of numbers": kind})
    num_before, began = parts.num_seen, time.perf_counter()
    part, waited, encoded, done = _Part(kind, encoder.num_features), 0.0, 0.0, num_before
    for embedded in embed(
        encoder, source, batch=batch, device=device, broken=broken, workers=workers, start=num_before
    ):
        part.add(embedded)
        done += embedded.num_seen
        waited, encoded = waited + embedded.waited, encoded + embedded.encoded
        advance(done, source.num, (done - num_before) / (time.perf_counter() - began))
        if part.num_seen >= IMAGES_PER_PART:
            part.write(parts)
    if part.num_seen:
        part.write(parts)
    about = {"encoder": digest, "spec": asdict(encoder.spec), "folder": os.getcwd()}
    all_broken = parts.broken
    if len(all_broken) == source.num:
        parts.remove()
        raise none_decoded(all_broken)
    parts.finish({"contune": json.dumps(about)})
    return Written(
        num=source.num - len(all_broken),
        num_features=encoder.num_features,
        num_before=num_before,
        broken=all_broken,
        seconds=time.perf_counter() - began,
        waited=waited,
        encoded=encoded,
    )


def num_images(images: str) -> int:
    """In a table of embeddings, or wherever else images are."""
    stored = Stored.open(Path(images).expanduser())
    return open_source(images).num if stored is None else int(pq.read_metadata(stored.path).num_rows)


def is_table(path: Path) -> bool:
    """Whether `write_embeddings` made what is in a file."""
    return Stored.open(path) is not None


def encoder_digest(run: Path) -> str:
    """Stands for the encoder: embeddings of two different ones cannot be compared."""
    with (run / ENCODER_FILE if run.is_dir() else run).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Stored:
    """A table that `write_embeddings` made."""

    def __init__(self, path: Path, about: dict[str, Any]) -> None:
        self.path, self.encoder, self.folder = path, str(about["encoder"]), Path(about["folder"])

    @classmethod
    def open(cls, path: Path) -> "Stored | None":
        """None where it is not such a table."""
        if path.suffix.lower() != ".parquet" or not path.is_file():
            return None
        with suppress(pa.ArrowInvalid, OSError, ValueError, KeyError, TypeError):
            return cls(path, json.loads(pq.read_schema(path).metadata[_METADATA]))
        return None

    def located(self, path: str) -> str:
        """Where the image is from here, if it was given relative to another working folder."""
        is_here = os.path.exists(path) or os.path.exists(path.rpartition("#")[0])
        return path if is_here else str(self.folder / path)

    def read(self, run: Path) -> Iterator[Embedded]:
        """All of it, provided that the encoder of this run made it."""
        if encoder_digest(run) != self.encoder:
            raise UserError(
                f"the embeddings in {self.path} are of another encoder than that of {run}; "
                f"make them anew with `contune embed {run} IMAGES`"
            )

        with pq.ParquetFile(self.path, pre_buffer=False) as file:
            for rows in file.iter_batches(4096, columns=["path", "label", "embedding"]):
                column = rows["embedding"]
                embeddings_BD = column.flatten().to_numpy().reshape(len(rows), column.type.list_size)
                yield Embedded(
                    paths=rows["path"].to_pylist(),
                    labels=rows["label"].to_pylist(),
                    embeddings=embeddings_BD.astype(np.float32),
                )


class _Part:
    """Embeddings on their way to the disk."""

    def __init__(self, kind: str, num_features: int) -> None:
        self.dtype, self.arrow = KINDS[kind]
        self.num_features = num_features
        self.embedded: list[Embedded] = []

    @property
    def num_seen(self) -> int:
        return sum(embedded.num_seen for embedded in self.embedded)

    def add(self, embedded: Embedded) -> None:
        self.embedded.append(embedded)

    def write(self, parts: Parts) -> None:
        paths = [path for embedded in self.embedded for path in embedded.paths]
        labels = [label for embedded in self.embedded for label in embedded.labels]
        numbers = _as_kind(np.concatenate([embedded.embeddings for embedded in self.embedded]), self.dtype)
        flat = pa.array(numbers.reshape(-1), type=self.arrow)
        columns = {
            "path": pa.array(paths, type=pa.string()),
            "label": pa.array(labels, type=pa.string()),
            "embedding": pa.FixedSizeListArray.from_arrays(flat, self.num_features),
        }
        broken = [broken for embedded in self.embedded for broken in embedded.broken]
        parts.add(pa.table(columns), broken, self.num_seen)
        self.embedded = []


def _as_kind(embeddings_ND: np.ndarray, dtype: Any) -> np.ndarray:
    with np.errstate(over="ignore"):
        numbers_ND = embeddings_ND.astype(dtype)
    if not np.isfinite(numbers_ND).all():
        raise UserError(
            f"features of this encoder are up to {np.abs(embeddings_ND).max():.3g} and do not fit "
            f"{np.dtype(dtype).name}; take float32"
        )
    return numbers_ND
