"""Images of your own: a folder of class folders, a flat folder, or Hugging Face style parquet."""

from contune.config import AugmentConfig, Config, DataConfig, ModelConfig, OptimConfig
from contune.recipes import paper


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
