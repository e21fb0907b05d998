"""Images → embeddings, a batch at a time: decoded by a pool, encoded on the device, never more than a few in memory.

Shapes: B images, C channels, S side, D features.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import torch

from contune.console import plural
from contune.data.broken import Broken
from contune.data.pool import decoding_pool
from contune.device import Autocast, choose_autocast, choose_device
from contune.embedding.decoding import batched, decode_items
from contune.embedding.source import Images, Source, chunks, open_source
from contune.errors import UserError, unknown
from contune.models.saved import evaluating
from contune.models.saved import ImageEncoder, load_encoder

BATCH = 256
POLICIES = ("skip", "stop")


@dataclass(frozen=True, kw_only=True)
class Embedded:
    """A batch of images with their embeddings."""

    paths: list[str]
    """As a folder has them; 'file.parquet#12' for the row 12 of a parquet."""
    labels: list[str | None]
    """The class folder or the label column, where there is one."""
    embeddings: np.ndarray
    """float32 (B, D), the encoder's features as they are: divide by their length for cosines."""
    broken: list[Broken] = field(default_factory=list)
    """Images that could not be decoded and have no embedding."""
    waited: float = 0.0
    """Seconds in which the device had to wait for these images to be decoded."""
    encoded: float = 0.0
    """Seconds that the encoder took for them."""

    @property
    def num_seen(self) -> int:
        return len(self.paths) + len(self.broken)


def embed(
    run: str | Path | ImageEncoder,
    images: Images,
    *,
    batch: int = BATCH,
    device: str = "auto",
    broken: str = "skip",
    workers: int | None = None,
    start: int = 0,
    label_column: str | None = None,
) -> Iterator[Embedded]:
    """The embeddings of a folder, an image or parquet, a batch at a time, by the encoder of a run.

        for part in contune.embed("runs/photos", "photos/"):
            index.add(part.paths, part.embeddings)

    `run` is its folder, or what `contune.load_encoder` gave, which goes to the device and keeps its mode. `images` may
    be a list of paths or pictures (PIL) too. They are prepared as the encoder was trained. One that cannot be decoded
    is listed in `broken` of its batch, or stops it all with broken="stop". `workers` decode at a time; None: one for
    each core. `start` leaves out the first images, in the order of their names. `label_column` is for parquet whose
    labels have an unusual name.
    """
    if broken not in POLICIES:
        raise unknown("way with broken images", broken, POLICIES)
    if batch < 1:
        raise UserError(f"a batch of {batch} images is empty; take 1 or more")
    encoder = load_encoder(run) if not isinstance(run, ImageEncoder) else run
    source = open_source(images, label_column)
    if not 0 <= start <= source.num:
        raise UserError(
            f"start={start} does not fit {plural(source.num, 'image')}; leave out 0 to {source.num} of them"
        )
    return _embedded(encoder, source, batch, _device(device), broken == "stop", workers, start)


def _embedded(
    encoder: ImageEncoder,
    source: Source,
    batch: int,
    place: torch.device,
    stop: bool,
    workers: int | None,
    start: int,
) -> Iterator[Embedded]:
    autocast = choose_autocast("auto", place)
    encoder.to(place)
    decode = partial(decode_items, size=encoder.spec.image_size, channels=encoder.spec.channels)
    with decoding_pool(source.num - start, workers) as pool:
        decoded = batched(pool.map(decode, chunks(source, start)), batch)
        began = time.perf_counter()
        for part in decoded:
            if stop and part.broken:
                raise UserError(part.sentence)
            arrived = time.perf_counter()
            embeddings_BD = _encoded(encoder, part.x_BCSS, place, autocast)
            _check_finite(embeddings_BD, part.names)
            yield Embedded(
                paths=part.names,
                labels=part.labels,
                embeddings=embeddings_BD,
                broken=part.broken,
                waited=arrived - began,
                encoded=time.perf_counter() - arrived,
            )
            began = time.perf_counter()


@torch.no_grad()
def _encoded(encoder: ImageEncoder, x_BCSS: np.ndarray | None, device: torch.device, autocast: Autocast) -> np.ndarray:
    if x_BCSS is None:
        return np.empty((0, encoder.num_features), np.float32)
    with evaluating(encoder), autocast():
        features_BD = encoder(torch.from_numpy(x_BCSS).to(device))
    embeddings_BD: np.ndarray = features_BD.float().cpu().numpy()
    return embeddings_BD


def _check_finite(embeddings_BD: np.ndarray, names: list[str]) -> None:
    finite_B = np.isfinite(embeddings_BD).all(axis=1)
    if not finite_B.all():
        name = names[int(finite_B.argmin())]
        raise UserError(f"the encoder's features of {name!r} are not finite; its training has diverged, so train anew")


def _device(name: str) -> torch.device:
    try:
        return choose_device(name)
    except UserError as error:
        raise UserError(str(error).replace("run.device=", "device ")) from error
