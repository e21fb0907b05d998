"""Made-up runs: what `write_report` and the comparison read, small enough to draw in a moment."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from contune.config import Config
from contune.data.images import ImageSet
from contune.eval.evaluate import score
from contune.report.compare import ComparedRun
from contune.report.page import write_report


def image_set(labels_M: Tensor | None, num: int, *, side: int = 8, channels: int = 1, name: str = "toy#{}") -> ImageSet:
    generator = torch.Generator().manual_seed(1)
    pixels = torch.randint(0, 256, (num, channels, side, side), generator=generator, dtype=torch.uint8)
    return ImageSet(images=pixels, labels=labels_M, names=[name.format(i) for i in range(num)])


def finished_run(num: int = 60, num_classes: int = 3, *, class_name: str = "class {}", **look: Any) -> dict[str, Any]:
    """The arguments of `write_report` for labelled images in clusters, one image in five misclassified."""
    generator, dim = torch.Generator().manual_seed(0), max(num_classes, 2)
    labels_M = torch.arange(num) % num_classes
    features_MD = 4 * torch.eye(dim)[labels_M] + torch.randn(num, dim, generator=generator)
    predicted_M = torch.where(torch.arange(num) % 5 == 0, (labels_M + 1) % num_classes, labels_M)
    class_names = tuple(class_name.format(k) for k in range(num_classes))
    scores_MK = torch.nn.functional.one_hot(predicted_M, num_classes).float()
    measures = [
        score(name, scores_MK, labels_M, class_names, protocol=f"the protocol of {name}", split="test")
        for name in ("linear-fast", "knn", "pixels-linear-fast", "pixels-knn")
    ]
    return {
        "result": result(measures),
        "config": Config().override(["method.k1=5000"]).to_dict(),
        "metrics": [
            {"step": i, "epoch": i / 4, "lr": 0.1 / i, "loss": 3 / i, "views_per_second": 900.0 + i, "train_top1": 0.5}
            for i in range(1, 30)
        ],
        "class_names": class_names,
        "images": image_set(labels_M, num, **look),
        "channels": look.get("channels", 1),
        "features_MD": features_MD,
        "predicted_M": predicted_M,
        "predicted_by": "linear-fast",
    }


def unlabelled_run(num: int = 40) -> dict[str, Any]:
    images = image_set(None, num)
    return finished_run(num) | {"result": result([]), "class_names": (), "images": images, "predicted_M": None}


def unevaluated_run() -> dict[str, Any]:
    """Without a split to evaluate on."""
    nothing = {"images": None, "features_MD": None, "predicted_M": None}
    return finished_run() | {"result": result([])} | nothing


def result(measures: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "method": "tcl",
        "data": "toy",
        "encoder": "resnet-mini",
        "split": "test",
        "epochs": 7,
        "seed": 3,
        "seconds": 75.2,
        "views_per_second": 1234.5,
        "measures": measures,
        "hardware": "a small machine",
        "versions": {"contune": "0.1.0", "torch": "2.11.0"},
        "git_revision": None,
        "finished": "2025-01-01T00:00:00+00:00",
    }


def report(folder: Path, run: dict[str, Any]) -> str:
    path = folder / "report.html"
    write_report(path, **run)
    return path.read_text(encoding="utf-8")


def compared_run(
    name: str,
    *overrides: str,
    seed: int = 0,
    linear: float | None = 90.0,
    knn: float = 80.0,
    classifier: float | None = None,
    protocol: str = "the probe",
) -> ComparedRun:
    """`linear=None`: a run that has not finished."""
    config = Config().override([*overrides, f"run.seed={seed}"])
    metrics = [
        {"step": step, "epoch": step / 4, "lr": 0.1, "loss": 3 / step + seed / 10, "positive_gradient": 0.1 / step}
        for step in range(1, 30)
    ]
    scores = {"linear-fast": linear, "knn": knn, "classifier": classifier}
    measures = [
        {"name": key, "top1": top1, "top5": None, "split": "test", "protocol": f"{protocol} of {key}"}
        for key, top1 in scores.items()
        if top1 is not None
    ]
    return ComparedRun(name, config, None if linear is None else {"measures": measures, "seconds": 60.0}, metrics)


def seeds(name: str, *overrides: str, linear: tuple[float, ...]) -> list[ComparedRun]:
    return [compared_run(f"{name}/seed{seed}", *overrides, seed=seed, linear=top1) for seed, top1 in enumerate(linear)]
