"""Libraries with the same losses, as far as they are installed, called the way their documentation says."""

from collections.abc import Callable
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version

import torch
import torch.nn.functional as F
from torch import Tensor

from contune.bench.contestants import TEMPERATURE, Contestant, matrices
from contune.device import torchvision  # noqa: F401  (before any of them imports torchvision by itself)


def peer_contestants(device: torch.device) -> tuple[list[Contestant], list[str]]:
    """Who is there, and the names of those who are not."""
    found: list[Contestant] = []
    absent: list[str] = []
    for name, build in _PEERS.items():
        if name == "inf-cl" and device.type != "cuda":
            continue  # its kernels are for GPUs only
        try:
            found += build(f"{name} {version(name)}")
        except (ImportError, PackageNotFoundError):
            absent.append(name)
    return found, absent


def _metric_learning(source: str) -> list[Contestant]:
    losses = import_module("pytorch_metric_learning.losses")
    return [
        Contestant(
            name="pytorch-metric-learning",
            loss="supcon",
            function=losses.SupConLoss(temperature=TEMPERATURE),
            source=source,
            footprint=matrices(12),
        ),
        Contestant(
            name="pytorch-metric-learning",
            loss="ntxent",
            function=losses.NTXentLoss(temperature=TEMPERATURE),
            source=source,
            footprint=lambda num: 16 * num**3,
            note="its memory grows as N³",
        ),
    ]


def _lightly(source: str) -> list[Contestant]:
    loss = import_module("lightly.loss").NTXentLoss(temperature=TEMPERATURE)

    def of_two_views(z: Tensor, labels: Tensor) -> Tensor:
        half = z.shape[0] // 2
        value: Tensor = loss(z[:half], z[half:])
        return value

    return [Contestant(name="lightly", loss="ntxent", function=of_two_views, source=source, footprint=matrices(5))]


def _inf_cl(source: str) -> list[Contestant]:
    """As many pairs as the others, N×N; but an anchor's only positive is the same row, and is not masked out."""
    loss = import_module("inf_cl").cal_flash_loss

    def of_all_pairs(z: Tensor, labels: Tensor) -> Tensor:
        z_ND = F.normalize(z, dim=1)
        value: Tensor = loss(z_ND, z_ND, scale=1 / TEMPERATURE, head_dim=min(z.shape[1], 128))
        return value.mean()

    note = "another formula: CLIP's, no self-mask; time and memory only"
    return [
        Contestant(
            name="Inf-CL",
            loss="ntxent",
            function=of_all_pairs,
            source=source,
            footprint=matrices(0),
            note=note,
            timing_only=True,
        )
    ]


_PEERS: dict[str, Callable[[str], list[Contestant]]] = {
    "pytorch-metric-learning": _metric_learning,
    "lightly": _lightly,
    "inf-cl": _inf_cl,
}
