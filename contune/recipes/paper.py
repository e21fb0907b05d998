"""The paper's training details (appendix B), once; each data set's file fills in its own values.

The paper counts batches after augmentation; `batch_images` counts before, so its 256 is 128 images × 2 views.
"""

from contune.config import AugmentConfig, Config, DataConfig, EvalConfig, ModelConfig, OptimConfig


def supervised(
    data: str, *, batch_views: int, lr: float, policy: str = "autoaugment", encoder: str = "resnet50"
) -> Config:
    """100 epochs of contrastive training, SGD, cosine by the epoch to a thousandth, then the 50-epoch probe."""
    return Config(
        data=DataConfig(name=data),
        augment=AugmentConfig(policy=policy, views=2),
        model=ModelConfig(encoder=encoder),
        optim=OptimConfig(epochs=100, batch_images=batch_views // 2, lr=lr, schedule="cosine-epoch", final_lr=1e-3),
        eval=EvalConfig(linear="paper", linear_batch=batch_views),
    )


def tcl(config: Config, *, k1: float, k2: float = 1.0) -> Config:
    return config.override(["method.name=tcl", f"method.k1={k1}", f"method.k2={k2}"])


def supcon(config: Config) -> Config:
    return config.override(["method.name=supcon"])


def cross_entropy(config: Config) -> Config:
    """The same total of epochs on single views; its rate, which the appendix leaves out, as SupContrast's."""
    return config.override(
        [
            "method.name=cross-entropy",
            "augment.views=1",
            f"optim.epochs={config.optim.epochs + config.eval.linear_epochs}",
            "optim.batch_images=128",
            "optim.lr=0.1",
            "eval.linear=fast",
        ]
    )


def longer(config: Config) -> Config:
    """The appendix's 250 epochs: 100 more of contrastive training."""
    config.optim.epochs += 100
    return config


TRIPLETS = (
    "method.name=tcl",
    "method.supervised=false",
    "method.k1=1",
    "method.k2=1.5",
    "method.temperature=0.2",
    "method.projector_hidden=2048",
    "method.projector_dim=256",
)
"""Without labels (B.3): k1 and k2 as the appendix has them; τ, which it leaves out, and the head are SimCLR's."""


def tcl_triplets(config: Config) -> Config:
    return config.override(TRIPLETS)
