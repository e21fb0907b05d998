"""What "Tuned Contrastive Learning" (Animesh and Chandraker) reports: top-1 %, by table, data set and method.

Tables 1 and 3 have ResNet-50, for ImageNet-100 ResNet-18; table 2 has ResNet-18 throughout. Its row of supervised
TCL is the only ResNet-18 number for CIFAR that the paper prints; SupCon's are in a figure.
"""

from dataclasses import dataclass

from contune.recipes.reported import DATA, PAPER


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


CIFAR10, CIFAR100, FMNIST, IMAGENET100 = "cifar10", "cifar100", "fmnist", "imagenet100"
_TABLE_1 = {
    CIFAR10: {"cross-entropy": 95.0, "supcon": 96.3, "tcl": 96.4},
    CIFAR100: {"cross-entropy": 75.3, "supcon": 79.1, "tcl": 79.8},
    FMNIST: {"cross-entropy": 94.5, "supcon": 95.5, "tcl": 95.7},
    IMAGENET100: {"cross-entropy": 84.2, "supcon": 85.9, "tcl": 86.7},
}
_TABLE_2 = {
    data: {method.removesuffix("-ssl"): values[column] for method, values in PAPER.items()}
    for column, data in enumerate(DATA)
}
_TABLE_2_SUPERVISED_TCL = {CIFAR10: 95.8, CIFAR100: 77.5}
_TABLE_3 = {
    CIFAR10: {"supcon": 96.7, "tcl": 96.8},
    CIFAR100: {"supcon": 81.0, "tcl": 81.6},
    FMNIST: {"supcon": 95.5, "tcl": 95.7},
    IMAGENET100: {"supcon": 86.5, "tcl": 87.1},
}


def _all() -> dict[Setting, Reported]:
    found = {}
    for number, table, epochs in ((1, _TABLE_1, 100), (3, _TABLE_3, 200)):
        for data, values in table.items():
            encoder = "resnet18" if data == IMAGENET100 else "resnet50"
            for method, top1 in values.items():
                # Cross-entropy has no probe after it and trains for the total of 150 epochs.
                own_epochs = epochs + 50 if method == "cross-entropy" else epochs
                found[Setting(data, encoder, method, True, own_epochs)] = Reported(top1, number)
    for data, values in _TABLE_2.items():
        epochs = 400 if data == IMAGENET100 else 1000
        for method, top1 in values.items():
            found[Setting(data, "resnet18", method, False, epochs)] = Reported(top1, 2)
    for data, top1 in _TABLE_2_SUPERVISED_TCL.items():
        found[Setting(data, "resnet18", "tcl", True, 100)] = Reported(top1, 2)
    return found


REPORTED = _all()
