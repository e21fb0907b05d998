"""scikit-learn's 8×8 digits, the embedded default: real images, a CPU, under a minute."""

from contune.config import AugmentConfig, Config, DataConfig, ModelConfig, OptimConfig
from contune.recipes import paper


def base(*, views: int, epochs: int) -> Config:
    """What all of them share."""
    return Config(
        data=DataConfig(name="digits"),
        augment=AugmentConfig(policy="digits", views=views),
        model=ModelConfig(encoder="resnet-mini"),
        optim=OptimConfig(epochs=epochs, batch_images=64, lr=0.1, warmup_epochs=1),
    )


def tcl() -> Config:
    """Handwritten digits, TCL, half a minute of CPU: the default.

    k1 is a tenth of the paper's usual value: with 5000 the loss hardly leaves ln N in these 20 epochs.
    """
    return base(views=2, epochs=20).override(["method.k1=500"])


def supcon() -> Config:
    """Handwritten digits, SupCon."""
    return paper.supcon(tcl())


def cross_entropy() -> Config:
    """Handwritten digits, cross-entropy."""
    return tcl().override(["method.name=cross-entropy"])
