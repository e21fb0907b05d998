"""Your own images, from a folder to nearest neighbors. Here the folder is temporary and holds digits.

python examples/own_images.py

The command line does the same: contune train images data.path=FOLDER
"""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from PIL import Image
from sklearn.datasets import load_digits

import contune
from contune.data import load_dataset
from contune.models import ImageEncoder

SETTINGS: dict[str, Any] = {
    "image_size": 8,  # photos want the recipe's own size, and its augmentation with flips and color jitter
    "policy": "digits",
    "encoder": "resnet-mini",
    "epochs": 4,
    "batch_images": 32,
    "loggers": (),
    "report": False,
}


def make_folder(folder: Path) -> None:
    """400 times folder/CLASS/NUMBER.png, of four classes."""
    bunch = load_digits(n_class=4)
    for number, (pixels, digit) in enumerate(zip(bunch.images[:400], bunch.target[:400], strict=True)):
        path = folder / f"digit-{digit}" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray((pixels * 255 / 16).astype("uint8")).save(path)


def show_neighbors(encoder: ImageEncoder, photos: Path) -> None:
    """For one held-out image of each class, the most similar training images."""
    dataset = load_dataset(str(photos))
    assert dataset.test is not None
    assert dataset.test.labels is not None
    features = {}
    for name, images in (("train", dataset.train), ("test", dataset.test)):
        pixels_NCHW = images.resident(encoder.spec.image_size, encoder.spec.channels)
        with torch.no_grad():
            features[name] = torch.nn.functional.normalize(encoder(pixels_NCHW))
    similarity_MN = features["test"] @ features["train"].T
    for label in range(len(dataset.class_names)):
        index = int((dataset.test.labels == label).nonzero()[0])
        nearest = [Path(dataset.train.names[i]) for i in similarity_MN[index].topk(3).indices]
        asked = Path(dataset.test.names[index])
        print(f"{asked.parent.name}/{asked.name} is like", ", ".join(f"{p.parent.name}/{p.name}" for p in nearest))


def main() -> None:
    with TemporaryDirectory() as name:
        photos = Path(name) / "photos"
        make_folder(photos)
        run = contune.train(photos, out=Path(name) / "run", **SETTINGS)
        print(f"fast probe: {run.result['linear_top1']:.1f} %")
        show_neighbors(run.encoder, photos)


if __name__ == "__main__":
    main()
