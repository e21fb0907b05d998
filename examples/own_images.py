"""Your own images, from a folder to nearest neighbors. Here the folder is temporary and holds digits.

python examples/own_images.py

The command line does the same: contune train images data.path=FOLDER
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from PIL import Image
from sklearn.datasets import load_digits

import contune
from contune.data import load_dataset
from contune.recipes import find_recipe
from contune.run import RunFolder
from contune.training.session import train

SETTINGS = (
    "data.image_size=8",  # photos want the recipe's own size, and its augmentation with flips and color jitter
    "augment.policy=digits",
    "model.encoder=resnet-mini",
    "optim.epochs=4",
    "optim.batch_images=32",
    "run.loggers=none",
    "run.report=false",
)


def make_folder(folder: Path) -> None:
    """400 times folder/CLASS/NUMBER.png, of four classes."""
    bunch = load_digits(n_class=4)
    for number, (pixels, digit) in enumerate(zip(bunch.images[:400], bunch.target[:400], strict=True)):
        path = folder / f"digit-{digit}" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray((pixels * 255 / 16).astype("uint8")).save(path)


def show_neighbors(run: Path, photos: Path) -> None:
    """For one held-out image of each class, the most similar training images."""
    encoder = contune.load_encoder(run)
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
        photos, run = Path(name) / "photos", Path(name) / "run"
        make_folder(photos)
        config = find_recipe("images")().override([f"data.path={photos}", *SETTINGS])
        result = train(config, RunFolder(run))
        print(f"linear probe: {result['linear_top1']:.1f} %")
        show_neighbors(run, photos)


if __name__ == "__main__":
    main()
