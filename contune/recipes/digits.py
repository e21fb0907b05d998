"""scikit-learn's 8×8 digits, the embedded default: real images, a CPU, under a minute."""

from contune.config import AugmentConfig, Config, DataConfig, ModelConfig, OptimConfig
from contune.recipes import paper


def tcl() -> Config:
    """Handwritten digits, TCL, half a minute of CPU: the default.

    k1 is a tenth of the paper's usual value: with 5000 the loss hardly leaves ln N in these 20 epochs.
    """
    return Config(
        data=DataConfig(name="digits"),
        augment=AugmentConfig(policy="digits", views=2),
        model=ModelConfig(encoder="resnet-mini"),
        optim=OptimConfig(epochs=20, batch_images=64, lr=0.1, warmup_epochs=1),
    ).override(["method.k1=500"])


def supcon() -> Config:
    """Handwritten digits, SupCon."""
    return paper.supcon(tcl())


def cross_entropy() -> Config:
    """Handwritten digits, cross-entropy."""
    return tcl().override(["method.name=cross-entropy"])


def ssl() -> Config:
    """Handwritten digits, TCL without labels on positive triplets."""
    config = paper.tcl_triplets(tcl())
    config.augment.views = 3
    return config
