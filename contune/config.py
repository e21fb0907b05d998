"""All settings of a run as a tree of dataclasses: recipes return it, the command line overrides it, runs save it."""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contune import methods
from contune.errors import UserError, check_known
from contune.files import write_atomic
from contune.methods import METHODS, find_method
from contune.settings import annotations_of, check, describe, one_of, parse, ranged, split_assignment

if TYPE_CHECKING:
    from contune.methods.base import Method

MOST_CHANNELS = 64
ENGINES = ("auto", "eager", "compile", "graph", "fused")
LOGGERS = ("tensorboard", "trackio", "wandb")


@dataclass(kw_only=True)
class DataConfig:
    name: str = "digits"
    """A dataset by name, or `images` for your own folder, CSV or parquet at data.path."""
    path: str | None = None
    """Where the files are: the root of a named dataset, or your images."""
    classes: str | None = None
    """For imagenet100: a text file with the name of one class folder per line."""
    label_column: str | None = None
    """For parquet and CSV: the label column, if it has an unusual name. For CSV also several: `make,type,year`."""
    image_size: int | None = ranged(None, low=4, high=8192)
    """Side of the square images the encoder sees, in pixels. [default: the dataset's own]"""
    resize: str = one_of("squash", ("crop", "pad", "squash"))
    """How an image becomes a square: `crop` keeps the middle, `pad` adds black bars, `squash` distorts it.

    `squash` is faster for large JPEGs, because it decodes them at reduced size, which changes features by up to 0.1.
    """
    range: str = one_of("auto", ("auto", "full"))
    """For 16-bit files: `auto` scales values below 4096 by the bits that they use, `full` keeps the highest 8 of 16.

    For floats and other arrays: `auto` scales each channel by its smallest and largest value in the training images,
    `full` by the range of the type, 0 to 1 for floats. All become 8 bits.
    """
    channels: int | None = ranged(None, low=1, high=MOST_CHANNELS)
    """1 for grayscale, 3 for color, or any other number that the files have. [default: the dataset's own]"""
    val_fraction: float = ranged(0.0, low=0.0, high=0.9)
    """Share of the training images held out for validation; the test set is never touched."""
    test_fraction: float = ranged(0.2, low=0.0, high=0.9)
    """Share held out for testing if your images have no test split."""
    unseen_classes: float = ranged(0.0, low=0.0, high=0.9)
    """Share of the classes, the last ones, held out as a whole: retrieval is evaluated on all of their images."""
    imbalance: float = ranged(1.0, low=1.0)
    """For experiments: keep fewer training images of each class than of the one before, a long tail. 1: keep all.

    Class c of K keeps imbalance^(-c / (K - 1)) of its images (Cui et al. 2019), the same ones for every run.seed.
    """
    images_per_class: int = ranged(8, low=2)
    """For optim.balance=sampler: images of each class in a batch; more if the data has fewer classes than fit."""
    broken: str = one_of("stop", ("stop", "skip"))
    """What to do about images that cannot be decoded: `stop`, or decode all before training and `skip` broken ones.

    A run that skips files equals a run without them. skipped.json and the report list them.
    """
    resident_gib: float = ranged(8.0, low=0.0)
    """Datasets up to this size, as squares of image_size, are kept on the device; larger ones stream from workers.

    On the device, random crops are cut from the squares. Workers cut them from whole images, with more detail.
    """
    workers: int | None = ranged(None, low=0)
    """Worker processes that decode images of a streamed dataset. [default: one per available core]"""


@dataclass(kw_only=True)
class AugmentConfig:
    policy: str = "autoaugment"
    """A policy and its options: `autoaugment`, `simaugment blur=0 crop_scale=0.2,1`, `crop-flip padding=2`, …"""
    views: int = ranged(2, low=1)
    """Augmented views of each image in a batch."""
    per_view: tuple[str, ...] = ()
    """A policy for each view instead of one for all: `simaugment; simaugment; simaugment size=16 blur=0`."""
    mix: str = one_of("none", ("none", "cutmix", "mixup"))
    """Mix the views and labels of two images: `cutmix` pastes a square, `mixup` averages pixels."""
    mix_alpha: float = ranged(1.0, above=0.0)
    """The share of each image is drawn from Beta(α, α). Below 1, one of the two prevails."""
    mix_probability: float = ranged(0.5, low=0.0, high=1.0)
    """The share of images that are mixed."""


@dataclass(kw_only=True)
class ModelConfig:
    encoder: str = "resnet50"
    """resnet18, resnet34, resnet50, resnet101, resnet-mini, or any timm model."""
    stem: str = one_of("auto", ("auto", "cifar", "imagenet"))
    """For ResNets: `cifar` is a 3×3 convolution without pooling, `imagenet` is timm's; `auto` chooses by image size."""
    norm: str = one_of("batch", ("batch", "group"))
    """For ResNets: `group` suits batches that are too small for batch norm."""
    weights: str | None = None
    """Weights to start from: a run folder, an export, `hf:OWNER/NAME`, a state dict, or a name of timm's weights.

    The encoder, its input size and the normalization follow the weights. [default: random weights]
    """


@dataclass(kw_only=True)
class MethodConfig:
    name: str = one_of("tcl", tuple(METHODS))
    """How the encoder learns. Each method has its own settings."""
    settings: "Method.Settings" = field(default_factory=lambda: find_method("tcl").Settings())
    """The settings of the method: `method.k1`, `method.temperature`, …"""


@dataclass(kw_only=True)
class OptimConfig:
    name: str = one_of("sgd", ("sgd", "lars", "adam", "adamw"))
    """The optimizer; `lars` suits large batches without labels."""
    epochs: int = ranged(100, low=0)
    """Passes over the training images; 0 evaluates an untrained encoder."""
    batch_images: int = ranged(128, low=1)
    """Images in a batch, over all processes. The loss sees batch_images × augment.views embeddings."""
    balance: str = one_of("none", ("none", "sampler", "weights"))
    """For imbalanced classes: `sampler` gives each class in a batch equally many images, `weights` weights the loss.

    `sampler`: data.images_per_class images of as many classes as fit; like `none` for several labels per image.
    `weights`: each anchor (each image, for cross-entropy) counts inversely to the number of training images of its
    class; the weights of a batch have mean 1.
    """
    micro_batch: int = ranged(0, low=0)
    """For batches too large for memory: views encoded at a time, by gradient caching. 0: all of them.

    Each view is encoded twice. Batch norm uses the statistics of so many views. Steps are not compiled or captured.
    """
    lr: float = ranged(0.1, low=0.0, high=1e6)
    """The highest learning rate. It is not scaled with the batch size."""
    momentum: float = ranged(0.9, low=0.0, high=1.0)
    """Momentum of SGD and LARS."""
    weight_decay: float = ranged(1e-4, low=0.0)
    """Weight decay. LARS does not decay biases and normalization parameters."""
    schedule: str = one_of("cosine", ("cosine", "cosine-epoch", "constant"))
    """`cosine` falls at every step; `cosine-epoch` at every epoch, one epoch late as in the authors' code."""
    warmup_epochs: float = ranged(0.0, low=0.0)
    """Epochs of linear warmup to lr, at most half of the run."""
    final_lr: float = ranged(0.0, low=0.0, high=1.0)
    """Learning rate at the end of the cosine, as a share of lr."""
    freeze_epochs: float = ranged(0.0, low=0.0)
    """Epochs at the start in which the encoder's weights stay as they are and only the head learns."""
    layer_decay: float = ranged(1.0, above=0.0, high=1.0)
    """Each layer of the encoder learns at this share of the rate of the layer above it. 1: all at the same rate."""
    patience: int = ranged(0, low=0)
    """Stop after this many validations without a better accuracy (see eval.every). 0: train all epochs."""


@dataclass(kw_only=True)
class EvalConfig:
    split: str = one_of("test", ("test", "val"))
    """The split to evaluate on."""
    linear: str = one_of("fast", ("fast", "paper", "authors", "none"))
    """`fast`: logistic regression on cached features. `paper`: also 50 augmented epochs on the frozen encoder.

    `authors`: also those epochs as the authors' code trains them, which changes the encoder's batch norm statistics.
    """
    linear_epochs: int = ranged(50, low=1)
    """Epochs of the `paper` and `authors` probes."""
    linear_lr: float = ranged(0.5, above=0.0, high=1e6)
    """Learning rate of the `paper` and `authors` probes, with a cosine schedule."""
    linear_batch: int = ranged(256, low=1)
    """Batch size of the `paper` probe. The `authors` probe uses half as many images: they count two views of each."""
    knn_k: int = ranged(20, low=1)
    """Number of neighbors of the kNN classifier."""
    knn_temperature: float = ranged(0.1, above=0.0)
    """Neighbors are weighted by exp(similarity / temperature)."""
    online: bool = False
    """Train a linear probe on detached features along with the encoder, if there are labels. Log and score it."""
    start: bool = False
    """Also evaluate the encoder before training: what the trained one has to beat."""
    every: int = ranged(0, low=0)
    """Epochs between validations by kNN during training. They need data.val_fraction. 0: never."""


@dataclass(kw_only=True)
class RunConfig:
    seed: int = ranged(0, low=0, high=2**63 - 1)
    """Seed of weights, order and augmentation: the same seed gives the same run."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:1, mps"""
    precision: str = one_of("auto", ("auto", "fp32", "bf16"))
    """`auto`: bfloat16 on GPUs that support it, float32 elsewhere."""
    engine: str = one_of("auto", ENGINES)
    """`graph` replays CUDA graphs; `fused` (ResNets) and `compile` also fuse kernels; `auto` chooses by run length."""
    autotune: bool = True
    """Time cuDNN's algorithms and use the fastest. The choice, and so the last bits, may differ between runs."""
    log_every: int | None = ranged(None, low=1)
    """Steps between lines of metrics.jsonl. [default: 20, fewer in runs below 1,000 steps, which have 50 lines]"""
    gradients: bool = True
    """For tcl, supcon and simclr: log how strongly positives pull and negatives push."""
    checkpoint_seconds: float = ranged(60.0, low=0.0)
    """Seconds between checkpoints. Training also ends with one."""
    on_nan: str = one_of("stop", ("stop", "skip"))
    """What to do if a loss or gradient is not finite: `stop` the run, or `skip` the step."""
    loggers: tuple[str, ...] = ("tensorboard",)
    """Where else the log goes, with the config and the accuracies: `tensorboard`, `trackio`, `wandb`, or `none`."""
    report: bool = True
    """Write report.html at the end."""
    keep: str = one_of("last", ("last", "best"))
    """Which encoder to keep: of the `last` epoch, or the one with the `best` validation accuracy (see eval.every)."""


MACHINE_SETTINGS = (
    "run.device",
    "run.engine",
    "run.autotune",
    "run.log_every",
    "run.gradients",
    "run.checkpoint_seconds",
    "run.on_nan",
    "run.loggers",
    "run.report",
    "data.workers",
)
"""Settings that change where and how a run computes, not what. A run may be resumed with other values."""


@dataclass(kw_only=True)
class Config:
    """All settings of a run, by section."""

    data: DataConfig = field(default_factory=DataConfig)
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    method: MethodConfig = field(default_factory=MethodConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    eval: EvalConfig = field(default_factory=EvalConfig)
    run: RunConfig = field(default_factory=RunConfig)

    def override(self, assignments: str | Iterable[str] | Mapping[str, Any]) -> "Config":
        """Apply KEY=VALUE texts, or values by their keys, in place. Then check all settings.

        The last part of a key is enough where only one setting has it: `epochs`, `lr`, `seed`. A section stands for its
        name: `method="supcon"`, `optim="adamw"`.
        """
        if not isinstance(assignments, Mapping):
            texts = [assignments] if isinstance(assignments, str) else assignments
            assignments = dict(map(split_assignment, texts))
        # The method comes first because it brings its own settings.
        method = str(assignments.get("method.name", assignments.get("method", self.method.name)))
        if method != self.method.name:
            self.method = MethodConfig(name=method, settings=find_method(method).Settings())
        meanings, keys = meanings_of(self.flat()), []
        for spelling, value in assignments.items():
            check_known("setting", spelling, meanings)
            key, *others = meanings[spelling]
            if others:
                raise UserError(f"setting {spelling!r} is ambiguous; write {' or '.join([key, *others])}")
            keys.append(key)
            section, _, name = key.partition(".")
            if key != "method.name":
                own: Any = self.method.settings if section == "method" else getattr(self, section)
                setattr(own, name, parse(value, annotations_of(own)[name], key))
        if "augment.policy" in keys and "augment.per_view" not in keys:
            self.augment.per_view = ()  # one policy for all views
        return self.check()

    def check(self) -> "Config":
        for section, values in vars(self).items():
            check(self.method.settings if section == "method" else values, f"{section}.")
        if self.run.loggers == ("none",):
            self.run.loggers = ()
        for name in self.run.loggers:
            check_known("run.loggers", name, LOGGERS)
        num_policies = len(self.augment.per_view)
        if num_policies not in (0, self.augment.views):
            raise UserError(
                f"augment.per_view has {num_policies} policies; give one for augment.views={self.augment.views}"
            )
        return self

    def to_dict(self) -> dict[str, dict[str, Any]]:
        tree = asdict(self)
        tree["method"] |= tree["method"].pop("settings")
        return tree

    @classmethod
    def from_dict(cls, tree: dict[str, dict[str, Any]]) -> "Config":
        """Settings that it lacks have their defaults."""
        values = {f"{section}.{name}": value for section, part in tree.items() for name, value in part.items()}
        if values.pop("data.sampler", "") == "balanced":  # of older runs, as is run.tensorboard
            values["optim.balance"] = "sampler"
        values.pop("run.tensorboard", None)
        return cls().override(values)

    def save(self, path: str | Path) -> None:
        write_atomic(Path(path), json.dumps(self.to_dict(), indent=2) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> "Config":
        try:
            return cls.from_dict(json.loads(Path(path).read_text(encoding="utf-8")))
        except (ValueError, AttributeError) as error:  # includes a UserError
            raise UserError(f"{path} is not a config that contune wrote: {error}") from None

    def differences(self, other: "Config") -> list[str]:
        """Keys in which two configs differ, apart from machine settings."""
        mine, theirs = self.flat(machine=False), other.flat(machine=False)
        return [key for key in sorted(mine.keys() | theirs.keys()) if mine.get(key) != theirs.get(key)]

    def fingerprint(self, *ignored: str) -> str:
        """A hash of eight characters, over everything but machine settings and the keys in `ignored`."""
        meaning = {key: value for key, value in self.flat(machine=False).items() if key not in ignored}
        return hashlib.sha256(json.dumps(meaning, sort_keys=True).encode()).hexdigest()[:8]

    def flat(self, *, machine: bool = True) -> dict[str, Any]:
        """All values by their dotted keys, with or without machine settings."""
        every = {f"{section}.{name}": value for section, own in self.to_dict().items() for name, value in own.items()}
        return {key: value for key, value in every.items() if machine or key not in MACHINE_SETTINGS}


def described(part: str = "") -> dict[tuple[str, str, str, str], list[str]]:
    """All settings whose keys contain this text, with the methods that have them; [] for every run."""
    found: dict[tuple[str, str, str, str], list[str]] = {}
    for item in fields(Config):
        cls: Any = item.default_factory
        found |= {setting: [] for setting in describe(cls, item.name)}
        for method in METHODS if item.name == "method" else ():
            for setting in describe(find_method(method).Settings, item.name):
                found.setdefault(setting, []).append(method)
    return {setting: of_methods for setting, of_methods in found.items() if part in setting[0]}


def meanings_of(keys: Iterable[str]) -> dict[str, list[str]]:
    """The keys that each spelling may stand for."""
    meanings: dict[str, list[str]] = {}
    for key in dict.fromkeys(keys):
        for spelling in {key, key.removesuffix(".name"), key.partition(".")[2]}:
            meanings.setdefault(spelling, []).append(key)
    return meanings


def spelled_out(words: Iterable[str]) -> list[str]:
    """KEY=VALUE texts with full keys, but for a spelling that can be two: the method decides which one it has.

    Finds a misspelt key before torch is imported, which takes seconds. So the names of the methods' settings are read
    from the source.
    """
    keys = [f"{section.name}.{item.name}" for section in fields(Config) for item in fields(section.default_factory)]  # type: ignore[arg-type]  # each is a dataclass
    for path in Path(methods.__file__).parent.glob("*.py"):
        keys += [f"method.{name}" for name in re.findall(r"^ {8}(\w+): .+ = ", path.read_text("utf-8"), re.MULTILINE)]
    found, meanings = [], meanings_of(keys)
    for spelling, value in map(split_assignment, words):
        check_known("setting", spelling, meanings)
        key, *others = meanings[spelling]
        found.append(f"{spelling if others else key}={value}")
    return found
