"""Accuracies of class scores, each with the protocol it was measured under."""

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Measure:
    """One number that a person quotes, and what it means."""

    name: str
    top1: float
    """Per cent, as all accuracies here."""
    top5: float | None
    """None where there are fewer than six classes."""
    per_class: dict[str, float]
    protocol: str
    split: str
    num_images: int

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def measure(
    name: str, scores_NK: Tensor, labels_N: Tensor, class_names: tuple[str, ...], *, protocol: str, split: str
) -> Measure:
    """Top-1, top-5 and per-class accuracy of scores (higher is likelier) for each of K classes."""
    labels_N = labels_N.to(scores_NK.device)
    num_classes = scores_NK.shape[1]
    ranked_N5 = scores_NK.topk(min(5, num_classes), dim=1).indices
    hits_N5 = ranked_N5 == labels_N[:, None]
    hit_N = hits_N5[:, 0]
    per_class = {class_names[k]: _percent(hit_N[labels_N == k]) for k in labels_N.unique().tolist()}
    return Measure(
        name=name,
        top1=_percent(hit_N),
        top5=_percent(hits_N5.any(dim=1)) if num_classes > 5 else None,
        per_class=per_class,
        protocol=protocol,
        split=split,
        num_images=len(labels_N),
    )


def _percent(hit_N: Tensor) -> float:
    return float(100 * hit_N.sum().item() / len(hit_N))


def confusion(predicted_N: Tensor, labels_N: Tensor, num_classes: int) -> Tensor:
    """(K, K) counts: row the true class, column the predicted one."""
    cells = labels_N.cpu() * num_classes + predicted_N.cpu()
    return torch.bincount(cells, minlength=num_classes**2).reshape(num_classes, num_classes)
