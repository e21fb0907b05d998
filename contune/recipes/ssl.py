"""Recipes without labels: one row per method, from which each dataset's recipe is made.

The rows hold the values of solo-learn, the reference library, which trains alike on CIFAR-10 and CIFAR-100. A method's
own settings (head sizes, temperatures, momenta) are its defaults. Batches have 256 images, the size that solo-learn's
rates are stated for. There are three differences. Our warm-up starts at 0, solo-learn's at 3e-5. Our online probe uses
SGD at 0.1, solo-learn's 0.3 for MoCo and 3e-3 for W-MSE. SimCLR has TCL's head and rate also on ImageNet-100, as the
paper says; solo-learn has a head of 4096 and 512 there, and a rate of 0.3.

Start a recipe like `contune train cifar100-byol data.path=FOLDER`. ImageNet-100 streams, so random crops come from the
whole images.
"""

from dataclasses import dataclass

from contune.config import AugmentConfig, Config, DataConfig, EvalConfig, ModelConfig, OptimConfig
from contune.recipes import paper
from contune.recipes.paper import TITLES, reported

EPOCHS = {"cifar10": 1000, "cifar100": 1000, "imagenet100": 400}

Views = tuple[tuple[str, ...], tuple[str, ...]]
"""An augmentation policy per view, for CIFAR's small images and for ImageNet's, where blur has an effect."""

_MILD = "simaugment jitter=0.4,0.4,0.2,0.1"
_WIDE = "crop_scale=0.2,1"
SYMMETRIC = (("simaugment",) * 2,) * 2
WEAK = (("simaugment jitter=0.4,0.4,0.4,0.1",) * 2,) * 2
ASYMMETRIC = (
    (f"{_MILD} blur=0", f"{_MILD} blur=0 solarize=0.2"),
    (f"{_MILD} blur=1", f"{_MILD} blur=0.1 solarize=0.2"),
)
WEAK_OR_ASYMMETRIC = (WEAK[0], ASYMMETRIC[1])
CROP_AND_FLIP = "simaugment jitter_probability=0 gray=0 blur=0"
STUDENT_AND_TEACHER = ((_MILD, CROP_AND_FLIP),) * 2
VICREG = ((f"{_MILD} {_WIDE} blur=0 solarize=0.1",) * 2, (f"{_MILD} {_WIDE} solarize=0.1",) * 2)
W_MSE = ((f"simaugment {_WIDE} blur=0",) * 2, (f"simaugment {_WIDE} blur=0.2",) * 2)
BARELY_MOVED_DIGITS = "digits rotation=5 translation=0.05 scale=0.95,1.05 shear=3 contrast=0.1 brightness=0.03"
TRIPLETS = (("simaugment",) * 3,) * 2


@dataclass(frozen=True)
class Row:
    """How to train a method. The last two fields are KEY=VALUE overrides for a dataset."""

    title: str
    optimizer: str
    lr: float
    weight_decay: float
    views: Views
    settings: tuple[str, ...] = ()
    """Settings of the method that are not its defaults, with its name."""
    imagenet100: tuple[str, ...] = ()
    digits: tuple[str, ...] = ()
    """For tiny images, a tiny encoder and small batches: smaller heads and queues, and other rates."""


def _small(hidden: int, dim: int, *others: str, lr: float = 2e-3) -> tuple[str, ...]:
    """For digits: heads of these sizes, and AdamW at a rate for tens of epochs instead of hundreds."""
    heads = (f"method.projector_hidden={hidden}", f"method.projector_dim={dim}")
    return ("optim.name=adamw", f"optim.lr={lr}", *heads, *others)


ROWS = {
    "byol": Row(
        "BYOL", "lars", 1.0, 1e-5, ASYMMETRIC,
        imagenet100=("optim.lr=0.5", "optim.weight_decay=1e-6", "method.predictor_hidden=8192"),
        digits=_small(512, 128, "method.predictor_hidden=512", "method.momentum=0.97"),
    ),
    "dino": Row(
        "DINO", "lars", 0.3, 1e-6, ASYMMETRIC,
        imagenet100=("method.teacher_warmup_epochs=50",),
        digits=_small(
            256, 64, "method.num_prototypes=256", "method.teacher_temperature=0.04", "method.momentum=0.99",
            "optim.epochs=60", "optim.warmup_epochs=2",
        ),
    ),
    "simsiam": Row(
        "SimSiam", "sgd", 0.5, 1e-5, WEAK_OR_ASYMMETRIC,
        digits=_small(512, 512, "method.predictor_hidden=128", "optim.epochs=60", lr=1e-3),
    ),
    "moco-v2": Row(
        "MoCo v2+", "sgd", 0.3, 1e-4, WEAK,
        imagenet100=("method.queue_size=65536",),
        digits=_small(512, 128, "method.queue_size=256", lr=1e-3),
    ),
    "ressl": Row(
        "ReSSL", "sgd", 0.05, 1e-4, STUDENT_AND_TEACHER,
        imagenet100=("optim.lr=0.3",),
        digits=_small(
            512, 128, "method.queue_size=512", "method.momentum=0.97",
            f"augment.per_view=digits; {BARELY_MOVED_DIGITS}", lr=1e-3,
        ),
    ),
    "vicreg": Row("VICReg", "lars", 0.3, 1e-4, VICREG, digits=_small(512, 512)),
    "swav": Row(
        "SwAV", "lars", 0.6, 1e-6, SYMMETRIC,
        digits=_small(
            256, 128, "method.num_prototypes=128", "method.queue_size=384", "method.queue_epoch=10",
            "method.frozen_epochs=1", "optim.warmup_epochs=2",
        ),
    ),
    "w-mse": Row("W-MSE", "adam", 2e-3, 1e-6, W_MSE, digits=_small(256, 16, "method.whitening_size=32")),
    "arb": Row("ARB", "lars", 0.3, 1e-4, ASYMMETRIC, digits=_small(512, 32)),
    "barlow-twins": Row("Barlow Twins", "lars", 0.3, 1e-4, ASYMMETRIC, digits=_small(512, 256)),
    "simclr": Row("SimCLR", "lars", 0.4, 1e-4, SYMMETRIC),
    "tcl-ssl": Row("TCL, three views", "lars", 0.4, 1e-4, TRIPLETS, settings=paper.TRIPLETS),
}  # fmt: skip
"""In the order of the paper's table 2."""


def recipe(data: str, name: str) -> Config:
    """solo-learn's common values: ResNet-18, 256 images per batch, ten warm-up epochs and a cosine by the step."""
    row, large = ROWS[name], data == "imagenet100"
    views = row.views[1] if large else row.views[0]
    if data == "digits":
        config, differing = digits_base(views=len(views), epochs=40), row.digits
    else:
        differing = row.imagenet100 if large else ()
        config = Config(
            data=DataConfig(name=data, image_size=224 if large else None),
            augment=AugmentConfig(policy=views[0], views=len(views), per_view=views if len(set(views)) > 1 else ()),
            model=ModelConfig(encoder="resnet18"),
            optim=OptimConfig(
                name=row.optimizer,
                epochs=EPOCHS[data],
                batch_images=256,
                lr=row.lr,
                weight_decay=row.weight_decay,
                warmup_epochs=10,
            ),
            eval=EvalConfig(linear="fast", online=True),
        )
    return config.override([*(row.settings or (f"method.name={name}",)), *differing])


def digits_base(*, views: int, epochs: int) -> Config:
    """The settings that all recipes for digits share: real images, on a CPU, in under a minute."""
    return Config(
        data=DataConfig(name="digits"),
        augment=AugmentConfig(policy="digits", views=views),
        model=ModelConfig(encoder="resnet-mini"),
        optim=OptimConfig(epochs=epochs, batch_images=64, lr=0.1, warmup_epochs=1),
    )


def summary(data: str, name: str) -> str:
    """What `recipe` trains with these arguments."""
    start = f"{TITLES[data]} without labels, {ROWS[name].title}"
    if data not in EPOCHS:
        return f"{start}; a CPU, about a minute."
    numbers = reported(name, data)
    texts = [f"the paper {'has' if name == 'tcl-ssl' else 'quotes'} {numbers['paper']}"]
    if "solo-learn" in numbers:
        texts.append(f"solo-learn has {numbers['solo-learn']:.2f}")
    return f"{start}, {EPOCHS[data]} epochs; {', '.join(texts)}."
