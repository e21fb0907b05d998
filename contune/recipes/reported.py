"""What others report: top-1 %, by table, data set and method. The one place for it.

The paper is "Tuned Contrastive Learning" (Animesh and Chandraker). Its tables 1 and 3 have ResNet-50, for ImageNet-100
ResNet-18; table 2 has ResNet-18 throughout, 1000 epochs (ImageNet-100: 400). The numbers behind its figures are not
printed, but for a few that the text names.

Of `PAPER`, which is table 2, only the row of TCL was measured there; the others it quotes, some from older runs of the
library. Where it has two heads, here is the one that the recipes have (Barlow Twins, ARB: 2048). `SOLO_LEARN` is that
reference library's own list, by a linear probe that learns beside the encoder; ARB's row, which it lacks, is that of
ARB's authors.
"""

from dataclasses import dataclass

DATA = ("cifar10", "cifar100", "imagenet100")
"""The columns of `PAPER` and `SOLO_LEARN`."""

PAPER = {
    "byol": (92.6, 70.2, 80.1),
    "dino": (89.2, 66.4, 74.8),
    "simsiam": (90.5, 65.9, 77.0),
    "moco-v2": (92.9, 69.5, 78.2),
    "ressl": (90.6, 65.8, 76.6),
    "vicreg": (90.1, 68.5, 79.2),
    "swav": (89.2, 64.7, 74.3),
    "w-mse": (88.2, 61.3, 69.1),
    "arb": (92.2, 69.6, 79.5),
    "barlow-twins": (89.6, 69.2, 78.6),
    "simclr": (90.7, 65.5, 77.5),
    "tcl-ssl": (91.6, 66.7, 77.9),
}
SOLO_LEARN = {
    "byol": (92.58, 70.46, 80.16),
    "dino": (89.52, 66.76, 74.84),
    "simsiam": (90.51, 66.04, 74.54),
    "moco-v2": (92.94, 69.89, 78.20),
    "ressl": (90.63, 65.92, 76.92),
    "vicreg": (92.07, 68.54, 79.22),
    "swav": (89.17, 64.88, 74.04),
    "w-mse": (88.67, 61.33, 67.60),
    "arb": (92.19, 69.57, 79.48),
    "barlow-twins": (92.10, 70.90, 80.38),
    "simclr": (90.74, 65.78, 77.64),
}

TABLE_1 = {
    "cifar10": {"cross-entropy": 95.0, "supcon": 96.3, "tcl": 96.4},
    "cifar100": {"cross-entropy": 75.3, "supcon": 79.1, "tcl": 79.8},
    "fmnist": {"cross-entropy": 94.5, "supcon": 95.5, "tcl": 95.7},
    "imagenet100": {"cross-entropy": 84.2, "supcon": 85.9, "tcl": 86.7},
}
"""150 epochs in all."""
TABLE_2_WITH_LABELS = {"cifar10": 95.8, "cifar100": 77.5}
"""TCL with labels, ResNet-18; of which batch size the paper does not say."""
TABLE_3 = {
    "cifar10": {"supcon": 96.7, "tcl": 96.8},
    "cifar100": {"supcon": 81.0, "tcl": 81.6},
    "fmnist": {"supcon": 95.5, "tcl": 95.7},
    "imagenet100": {"supcon": 86.5, "tcl": 87.1},
}
"""250 epochs in all."""
INTERVALS = {"supcon": (74.79, 0.23), "tcl": (75.72, 0.16)}
"""CIFAR-100, batches of 128, 30 runs: mean and half of the 95 % interval (appendix B.1,
whose encoder is ResNet-50)."""
K1_50000 = {1: 71.8, 3: 76.2}
"""CIFAR-100, ResNet-50, TCL with k1 = 50000, by k2 (section 4.4)."""


def reported(table: dict[str, tuple[float, float, float]], method: str, data: str) -> float | None:
    """The number that a table has for a method on a data set; None where it has none."""
    return table[method][DATA.index(data)] if method in table and data in DATA else None


@dataclass(frozen=True)
class Setting:
    """What has to agree for a run to stand beside a number of the paper."""

    data: str
    encoder: str
    method: str
    labels: bool
    epochs: int
    """Of the encoder; the linear probe's are not counted."""


@dataclass(frozen=True)
class Reported:
    top1: float
    table: int


def paper_settings() -> dict[Setting, Reported]:
    """All that the paper's tables print."""
    found = {}
    for number, table, epochs in ((1, TABLE_1, 100), (3, TABLE_3, 200)):
        for data, values in table.items():
            encoder = "resnet18" if data == "imagenet100" else "resnet50"
            for method, top1 in values.items():
                # Cross-entropy has no probe after it and trains for the total of 150 epochs.
                own_epochs = epochs + 50 if method == "cross-entropy" else epochs
                found[Setting(data, encoder, method, True, own_epochs)] = Reported(top1, number)
    for data in DATA:
        epochs = 400 if data == "imagenet100" else 1000
        for method, numbers in PAPER.items():
            top1 = numbers[DATA.index(data)]
            found[Setting(data, "resnet18", method.removesuffix("-ssl"), False, epochs)] = Reported(top1, 2)
    for data, top1 in TABLE_2_WITH_LABELS.items():
        found[Setting(data, "resnet18", "tcl", True, 100)] = Reported(top1, 2)
    return found
