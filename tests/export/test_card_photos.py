"""Photos as cameras and drawing programs leave them: the snippets of a card open them as training did."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from encoders import spec, write_run
from PIL import Image
from sklearn.datasets import load_sample_images
from snippets import features_of_the_photo

import contune
from contune.export import export_run
from contune.models import ImageEncoder

ORIENTATION, ON_ITS_SIDE = 0x0112, 6
PHOTO = Image.fromarray(load_sample_images().images[0])
NEEDS_ONNX = pytest.mark.skipif(find_spec("onnxscript") is None, reason="takes the extra onnx")


def turned(path: Path) -> None:
    """A JPEG that is to be shown on its side."""
    exif = Image.Exif()
    exif[ORIENTATION] = ON_ITS_SIDE
    PHOTO.save(path, "JPEG", exif=exif)


def transparent(path: Path) -> None:
    """Fading to the right; what shows through is white."""
    image = PHOTO.convert("RGBA")
    image.putalpha(Image.fromarray(np.tile(np.linspace(255, 0, image.width), (image.height, 1)).astype(np.uint8)))
    image.save(path, "PNG")


def gray(path: Path) -> None:
    PHOTO.convert("L").save(path, "PNG")


def as_stored(path: Path, channels: int) -> Image.Image:
    """Its pixels, without what the file says of them."""
    return Image.fromarray(np.asarray(Image.open(path).convert("L" if channels == 1 else "RGB")))


def embedding(encoder: ImageEncoder, image: Path | Image.Image) -> torch.Tensor:
    (part,) = contune.embed(encoder, [image])
    return torch.from_numpy(part.embeddings)


@pytest.mark.parametrize(
    ("to", "channels"),
    [
        ("timm", 3),
        ("timm", 1),
        ("safetensors", 3),
        ("safetensors", 1),
        pytest.param("onnx", 3, marks=NEEDS_ONNX),
        pytest.param("onnx", 1, marks=[NEEDS_ONNX, pytest.mark.slow]),
    ],
)
def test_a_card_prepares_photos_as_training_does(
    to: str, channels: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = write_run(tmp_path, spec("resnet-mini", size=32, channels=channels))
    folder = export_run(tmp_path, to).folder
    photo = folder / "photo.png"
    for store in (turned, transparent, gray):
        store(photo)
        expected_1D = embedding(encoder, photo)
        by_its_pixels_1D = embedding(encoder, as_stored(photo, channels))
        assert (torch.cosine_similarity(by_its_pixels_1D, expected_1D).item() < 0.99) == (store is not gray)
        for features_1D in features_of_the_photo(folder, monkeypatch):
            assert torch.cosine_similarity(features_1D, expected_1D).item() > 0.999, store.__name__
