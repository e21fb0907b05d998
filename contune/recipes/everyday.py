"""Everyday recipes: scikit-learn's 8×8 digits, the embedded default, and your own images."""

from contune.config import AugmentConfig, Config, DataConfig, ModelConfig, OptimConfig
from contune.recipes import paper

AUTO = ("method.k1=auto", "method.k2=auto")


def digits_base(*, views: int, epochs: int) -> Config:
    """The settings that all recipes for digits share: real images, on a CPU, in under a minute."""
    return Config(
        data=DataConfig(name="digits"),
        augment=AugmentConfig(policy="digits", views=views),
        model=ModelConfig(encoder="resnet-mini"),
        optim=OptimConfig(epochs=epochs, batch_images=64, lr=0.1, warmup_epochs=1),
    )


def digits() -> Config:
    """Handwritten digits, TCL, half a minute on a CPU: the default."""
    return digits_base(views=2, epochs=20).override(AUTO)


def digits_tcl() -> Config:
    """Handwritten digits, TCL with k1 = 500 and k2 = 1, chosen by hand.

    k1 is a tenth of the paper's usual value: with 5000 the loss hardly leaves ln N in these 20 epochs.
    """
    return digits_base(views=2, epochs=20).override(["method.k1=500", "method.k2=1"])


def digits_supcon() -> Config:
    """Handwritten digits, SupCon."""
    return paper.supcon(digits())


def digits_cross_entropy() -> Config:
    """Handwritten digits, cross-entropy."""
    return digits().override(["method.name=cross-entropy"])


def images() -> Config:
    """Your images with labels: TCL, ResNet-18 at 128 pixels, 100 epochs; add data.path=FOLDER."""
    return Config(
        data=DataConfig(name="images", image_size=128),
        augment=AugmentConfig(policy="simaugment-supervised", views=2),
        model=ModelConfig(encoder="resnet18"),
        optim=OptimConfig(epochs=100, batch_images=64, lr=0.05, warmup_epochs=2),
    ).override(AUTO)


def images_ssl() -> Config:
    """Your images without labels: TCL on positive triplets, ResNet-18, 200 epochs; add data.path=FOLDER."""
    config = images()
    config.augment = AugmentConfig(policy="simaugment", views=3)
    config.optim = OptimConfig(epochs=200, batch_images=128, lr=0.05, warmup_epochs=10)
    return config.override(paper.TRIPLETS)
