"""Images of your own: a folder of class folders, a flat folder, or Hugging Face style parquet."""

from contune.config import AugmentConfig, Config, DataConfig, ModelConfig, OptimConfig
from contune.errors import UserError
from contune.methods import find_method
from contune.models.encoders import SMALL_IMAGE
from contune.recipes import paper, ssl


def labelled() -> Config:
    """Your images with labels: TCL, ResNet-18 at 128 pixels, 100 epochs; add data.path=FOLDER."""
    return Config(
        data=DataConfig(name="images", image_size=128),
        augment=AugmentConfig(policy="simaugment-supervised", views=2),
        model=ModelConfig(encoder="resnet18"),
        optim=OptimConfig(epochs=100, batch_images=64, lr=0.05, warmup_epochs=2),
    )


def unlabelled() -> Config:
    """Your images without labels: TCL on positive triplets, ResNet-18, 200 epochs; add data.path=FOLDER."""
    config = labelled()
    config.augment = AugmentConfig(policy="simaugment", views=3)
    config.optim = OptimConfig(epochs=200, batch_images=128, lr=0.05, warmup_epochs=10)
    return paper.tcl_triplets(config)


def for_method(method: str, *, has_labels: bool, size: int) -> Config:
    """Settings that suit a method: those above, or the reference library's for images of this size."""
    needs_labels = find_method(method).Settings().needs_labels
    if needs_labels and has_labels:
        views = ["augment.views=1"] if method == "cross-entropy" else []
        return labelled().override([f"method.name={method}", *views])
    if method == "tcl":
        return unlabelled()
    if needs_labels:
        raise UserError(f"method {method} learns from labels and there are none; give them, or take tcl or simclr")
    config = ssl.recipe("cifar100" if size <= SMALL_IMAGE else "imagenet100", method)()
    config.data.name = "images"
    return config
