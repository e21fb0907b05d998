"""The paper's supervised recipes (appendix B), and the numbers that the paper and others report.

The paper is "Tuned Contrastive Learning" (Animesh and Chandraker). It counts batches after augmentation; `batch_images`
counts before, so its 256 is 128 images × 2 views.

Start a recipe like `contune train cifar100-tcl data.path=FOLDER`, with torchvision's files or Hugging Face parquet in
that folder. `model.encoder=resnet18` is faster than the paper's ResNet-50. ImageNet-100 needs a folder with train/ and
val/ and the names of its 100 class folders: `data.path=IMAGENET data.classes=LIST.txt`. Like the authors' code, we
squash its images to 224×224, then crop with padding. `data.resident_gib=20` keeps them on a GPU with enough memory.
"""

from typing import Any

from contune.config import Config

SSL_DATA = ("cifar10", "cifar100", "imagenet100")
REPORTED: dict[str, dict[str, tuple[float, float, float]]] = {
    "byol": {"paper": (92.6, 70.2, 80.1), "solo-learn": (92.58, 70.46, 80.16)},
    "dino": {"paper": (89.2, 66.4, 74.8), "solo-learn": (89.52, 66.76, 74.84)},
    "simsiam": {"paper": (90.5, 65.9, 77.0), "solo-learn": (90.51, 66.04, 74.54)},
    "moco-v2": {"paper": (92.9, 69.5, 78.2), "solo-learn": (92.94, 69.89, 78.20)},
    "ressl": {"paper": (90.6, 65.8, 76.6), "solo-learn": (90.63, 65.92, 76.92)},
    "vicreg": {"paper": (90.1, 68.5, 79.2), "solo-learn": (92.07, 68.54, 79.22)},
    "swav": {"paper": (89.2, 64.7, 74.3), "solo-learn": (89.17, 64.88, 74.04)},
    "w-mse": {"paper": (88.2, 61.3, 69.1), "solo-learn": (88.67, 61.33, 67.60)},
    "arb": {"paper": (92.2, 69.6, 79.5), "solo-learn": (92.19, 69.57, 79.48)},
    "barlow-twins": {"paper": (89.6, 69.2, 78.6), "solo-learn": (92.10, 70.90, 80.38)},
    "simclr": {"paper": (90.7, 65.5, 77.5), "solo-learn": (90.74, 65.78, 77.64)},
    "tcl-ssl": {"paper": (91.6, 66.7, 77.9)},
}
"""Top-1 % on SSL_DATA after training without labels, ResNet-18.

paper: table 2, 1000 epochs (ImageNet-100: 400). It measured only TCL and quotes the others, some from older runs of
solo-learn. Where it has two heads, this is the one that the recipes use (Barlow Twins, ARB: 2048).
solo-learn: its own results, by a linear probe that trains with the encoder. ARB's row comes from ARB's authors.
"""

TABLE_1 = {
    "cifar10": {"cross-entropy": 95.0, "supcon": 96.3, "tcl": 96.4},
    "cifar100": {"cross-entropy": 75.3, "supcon": 79.1, "tcl": 79.8},
    "fmnist": {"cross-entropy": 94.5, "supcon": 95.5, "tcl": 95.7},
    "imagenet100": {"cross-entropy": 84.2, "supcon": 85.9, "tcl": 86.7},
}
"""Table 1: with labels, 150 epochs in all. ResNet-50, for ImageNet-100 ResNet-18."""
QUOTED = {("cifar10", "cross-entropy"), ("cifar100", "cross-entropy")}
"""Equal to SupContrast's README to the digit, so probably quoted and of other settings. No table of ours shows them."""
TABLE_3 = {
    "cifar10": {"supcon": 96.7, "tcl": 96.8},
    "cifar100": {"supcon": 81.0, "tcl": 81.6},
    "fmnist": {"supcon": 95.5, "tcl": 95.7},
    "imagenet100": {"supcon": 86.5, "tcl": 87.1},
}
"""Table 3: as table 1, 250 epochs in all."""
TRIPLETS = (
    "method.name=tcl",
    "method.supervised=false",
    "method.k1=1",
    "method.k2=1.5",
    "method.temperature=0.2",
    "method.projector_hidden=2048",
    "method.projector_dim=256",
)
"""TCL without labels (B.3): k1 and k2 as in the appendix. It states neither τ nor the head; ours are SimCLR's."""

TITLES = {
    "digits": "Handwritten digits",
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "fmnist": "Fashion-MNIST",
    "imagenet100": "ImageNet-100",
}
SUPERVISED: dict[str, tuple[int, float, float, dict[str, Any]]] = {
    "cifar10": (128, 0.1, 5000.0, {}),
    "cifar100": (256, 0.2, 4000.0, {}),
    "fmnist": (128, 0.09, 5000.0, {"augment.policy": "crop-flip"}),
    "imagenet100": (256, 0.2, 4000.0, {"model.encoder": "resnet18", "data.image_size": 224}),
}
"""How the paper trains with labels: views in a batch, learning rate, k1, and other settings."""
TCL_LR = {"imagenet100": 0.3}
"""TCL's learning rate where it differs from SupCon's."""


def recipe(data: str, method: str, total_epochs: int) -> Config:
    """Contrastive training with SGD, a cosine by the epoch to a thousandth, then the 50-epoch probe.

    method: `tcl`, `supcon` or `ce`; total_epochs: of the encoder and the linear probe together.
    """
    batch_views, lr, k1, others = SUPERVISED[data]
    own: dict[str, Any] = {"method.name": method}
    if method == "tcl":
        own |= {"method.k1": k1, "method.k2": 1.0, "optim.lr": TCL_LR.get(data, lr)}
    if method == "ce":  # on single views, without a probe. The appendix states no rate; we take SupContrast's.
        own = {"method.name": "cross-entropy", "augment.views": 1, "optim.epochs": total_epochs, "eval.linear": "fast"}
        own |= {"optim.batch_images": 128, "optim.lr": 0.1}
    common = {
        "data.name": data, "augment.policy": "autoaugment", "augment.views": 2, "model.encoder": "resnet50",
        "optim.epochs": total_epochs - 50, "optim.batch_images": batch_views // 2, "optim.lr": lr,
        "optim.schedule": "cosine-epoch", "optim.final_lr": 1e-3,
        "eval.linear": "paper", "eval.linear_epochs": 50, "eval.linear_batch": batch_views,
    }  # fmt: skip
    return Config().override(common | others | own)


def summary(data: str, method: str, total_epochs: int) -> str:
    """What `recipe` trains with these arguments."""
    title = {"tcl": "TCL", "supcon": "SupCon", "ce": "cross-entropy"}[method]
    top1 = (TABLE_1 if total_epochs == 150 else TABLE_3)[data].get(method.replace("ce", "cross-entropy"))
    number = "" if top1 is None else f"; the paper has {top1}"
    epochs = f"{total_epochs} epochs" if method == "ce" else f"{total_epochs - 50} epochs, then 50 for the probe"
    return f"{TITLES[data]}, {title}, {epochs}{number}."


def reported(method: str, data: str) -> dict[str, float]:
    """The numbers in `REPORTED` by their source; none for data that nobody else has."""
    return {source: top1[SSL_DATA.index(data)] for source, top1 in REPORTED[method].items() if data in SSL_DATA}
