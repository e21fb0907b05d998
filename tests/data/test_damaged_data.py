"""Pictures and parquet with noise in them: decoded, or a sentence; never a traceback, a hang or all the memory."""

import random
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fuzzing import cases, damaged, for_all, seeds
from image_files import as_image, encoded, png, random_pixels

from contune.data import load_dataset
from contune.data.broken import BrokenImageError
from contune.data.decode import decode_image, peek, verify
from contune.errors import UserError

PICTURE = as_image(random_pixels(0, 24, 17))
PICTURES = {kind: encoded(PICTURE, kind) for kind in ("PNG", "JPEG", "WEBP", "BMP", "TIFF", "PPM")}
PICTURES |= {"GIF": encoded(PICTURE.convert("P"), "GIF"), "16 bits": encoded(PICTURE.convert("I;16"), "PNG")}


@cases
@pytest.mark.parametrize("kind", PICTURES)
def test_damaged_pictures(kind: str, num_cases: int) -> None:
    def check(seed: int) -> None:
        content = damaged(PICTURES[kind], random.Random(seed))
        with suppress(BrokenImageError):
            assert decode_image(content, "x", size=8, channels=3).shape == (3, 8, 8)
        with suppress(BrokenImageError):
            verify(content, "x")
        with suppress(BrokenImageError):
            peek(content, "x")

    for_all(num_cases, seeds, check)


@cases
@pytest.mark.parametrize("broken", ["stop", "skip"])
def test_damaged_parquet(broken: str, num_cases: int, tmp_path: Path) -> None:
    images = [{"bytes": png(random_pixels(seed)), "path": f"{seed}.png"} for seed in range(20)]
    path = tmp_path / "train.parquet"
    pq.write_table(pa.table({"image": images, "label": [seed % 2 for seed in range(20)]}), path)
    whole = path.read_bytes()

    def check(seed: int) -> None:
        path.write_bytes(damaged(whole, random.Random(seed)))
        with suppress(UserError):
            data = load_dataset(str(path), broken=broken)
            assert data.train.resident(8, 3).shape[1:] == (3, 8, 8)

    for_all(num_cases, seeds, check)
