"""ImageNet-100 (appendix B): ResNet-18 at 224 pixels.

`contune train imagenet100-tcl data.path=IMAGENET data.classes=LIST.txt`, a folder with train/ and val/ and the
names of its 100 class folders. As in the authors' code images are squashed to 224×224, then cropped with padding;
`data.resident_gib=20` keeps these squares on a GPU with the room.
"""

from contune.config import Config
from contune.recipes import paper


def _base(lr: float) -> Config:
    config = paper.supervised("imagenet100", batch_views=256, lr=lr, encoder="resnet18")
    return config.override(["data.image_size=224"])


def tcl() -> Config:
    """ImageNet-100, TCL, 150 epochs in all; the paper has 86.7."""
    return paper.tcl(_base(lr=0.3), k1=4000)


def tcl_250() -> Config:
    """ImageNet-100, TCL, 250 epochs in all; the paper has 87.1."""
    return paper.tcl(paper.longer(_base(lr=0.3)), k1=4000)


def supcon() -> Config:
    """ImageNet-100, SupCon, 150 epochs in all; the paper has 85.9."""
    return paper.supcon(_base(lr=0.2))


def supcon_250() -> Config:
    """ImageNet-100, SupCon, 250 epochs in all; the paper has 86.5."""
    return paper.supcon(paper.longer(_base(lr=0.2)))


def cross_entropy() -> Config:
    """ImageNet-100, cross-entropy, 150 epochs in all; the paper has 84.2."""
    return paper.cross_entropy(_base(lr=0.2))


def cross_entropy_250() -> Config:
    """ImageNet-100, cross-entropy, 250 epochs in all."""
    return paper.cross_entropy(paper.longer(_base(lr=0.2)))
