"""Export the encoder of a run as a folder that other libraries load, with a model card.

To add a format, write a function that fills a folder and explains how to load it, and add it to `FORMATS`.
"""

import re
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

from contune.data.augment import resize
from contune.errors import UserError, check_known
from contune.export.card import Written, model_card
from contune.export.onnx import write_onnx
from contune.export.pytorch import write_safetensors, write_timm
from contune.files import check_new_folder, unwritable
from contune.models.saved import CLASSIFIER_FILE, Classifier, ImageEncoder, load_classifier, load_encoder
from contune.run import RunFolder

FORMATS: dict[str, Callable[[ImageEncoder, Classifier | None, Path], Written]] = {
    "timm": write_timm,
    "safetensors": write_safetensors,
    "onnx": write_onnx,
}


def export_run(
    run: str | Path, to: str, out: str | Path | None = None, *, license: str | None = None, repo: str | None = None
) -> tuple[Path, float]:
    """Writes the encoder of a run in the format `to` into the folder `out` [default: RUN/TO], with a model card.

    license: of the weights, as the hub abbreviates it, such as `mit`. repo: where you will upload the export.

    Loads the export again as a user would and compares it with the run's encoder on photos. If the features differ,
    nothing is written. Returns the folder and the largest difference from the run's features, relative to the largest
    feature if that is above 1.
    """
    check_known("format", to, FORMATS)
    if license is not None and not re.fullmatch(r"[\w.+-]+", license):
        raise UserError(f"--license {license!r} is no abbreviation; write one such as mit, apache-2.0 or cc-by-nc-4.0")
    run = Path(run)
    folder = run / to if out is None else Path(out)
    check_new_folder(folder)
    encoder, result = load_encoder(run), RunFolder(run).result()
    classifier = load_classifier(run) if (run / CLASSIFIER_FILE).exists() else None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as name:
            part = Path(name)
            written = FORMATS[to](encoder, classifier, part)
            deviation = check_outputs(encoder, classifier, written)
            card = model_card(encoder, result, written, deviation, license=license, repo=repo)
            (part / "README.md").write_text(card, encoding="utf-8")
            part.chmod(0o755)  # a temporary folder is readable by its owner only
            part.replace(folder)
    except OSError as error:
        raise unwritable(folder, error) from error
    return folder, deviation


@torch.no_grad()
def check_outputs(encoder: ImageEncoder, classifier: Classifier | None, written: Written) -> float:
    """The deviation of an export on photos of the encoder's own size. Also compares a photo that must be resized."""
    from sklearn.datasets import load_sample_images

    photos_NCHW = torch.stack([torch.from_numpy(photo.copy()) for photo in load_sample_images().images])
    photos_NCHW = photos_NCHW.permute(0, 3, 1, 2)[:, torch.arange(encoder.spec.channels) % 3]
    deviations = []
    for images_NCHW, tolerance in (
        (resize(torch.cat(photos_NCHW.split(320, dim=3)), encoder.spec.image_size), 1e-4),
        (photos_NCHW[:1, :, :, :200], 1e-2),  # a value half way between two gray levels may round up or down
    ):
        expected = [encoder(images_NCHW)]
        expected += [] if classifier is None else [classifier.probabilities(expected[0])]
        found = written.outputs(images_NCHW)
        deviations.append(max(map(deviation_of, expected, found)))
        if deviations[-1] > tolerance:
            fix = "nothing was written; choose another format"
            raise UserError(f"exported features differ by {deviations[-1]:.4g}, more than {tolerance:g}; {fix}")
    return deviations[0]


def deviation_of(expected: Tensor, found: Tensor) -> float:
    """The largest difference, relative to the largest feature if that is above 1. Infinite for NaN or a wrong shape."""
    if expected.shape != found.shape:
        return float("inf")
    share = (expected - found.to(expected)).abs().max() / expected.abs().max().clamp(min=1)
    return float(share.nan_to_num(nan=float("inf")))
