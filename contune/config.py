"""The whole of a run as one tree of dataclasses: what a recipe returns, the command line overrides, a run saves."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from contune.errors import UserError, unknown
from contune.files import write_whole
from contune.methods import Method, find_method
from contune.models.encoders import NORMS, STEMS
from contune.settings import assign, check, fill, one_of, ranged, shortened, split_assignments

ENGINES = ("auto", "eager", "compile", "graph", "fused")


@dataclass(kw_only=True)
class DataConfig:
    name: str = "digits"
    """A data set by name, or `images` for a folder or parquet of your own at data.path."""
    path: str | None = None
    """Where the files are: the root of a named set, or your images."""
    classes: str | None = None
    """For imagenet100: a text file with one class folder's name a line."""
    label_column: str | None = None
    """For parquet: the column of labels, where its name is unusual."""
    image_size: int | None = ranged(None, low=4)
    """Side of the square images the encoder sees, in pixels; none: the data set's own."""
    channels: int | None = None
    """1 for grayscale, 3 for colour; none: the data set's own."""
    val_fraction: float = ranged(0.0, low=0.0, high=0.9)
    """Share of the training images set aside for validation; the test set is never touched."""
    test_fraction: float = ranged(0.2, low=0.0, high=0.9)
    """Share held out for testing where your images have no test split of their own."""
    sampler: str = one_of("shuffle", ("shuffle", "balanced"))
    """`balanced`: every batch has images_per_class images of as many classes as fit, for imbalanced data."""
    images_per_class: int = ranged(8, low=2)
    """Of each class in a balanced batch; more where the data has fewer classes than fit."""
    broken: str = one_of("stop", ("stop", "skip"))
    """Images that cannot be decoded: `stop` at the first, or decode all once before training and `skip` those.

    A run that skips them is the same as one on the other files alone; skipped.json and the report list them.
    """
    resident_gib: float = ranged(8.0, low=0.0)
    """Sets up to this size, as squares of image_size, are held on the device; larger ones stream from workers.

    Random crops are cut out of the squares there, and of the whole pictures by workers, which keeps more detail.
    """
    workers: int | None = ranged(None, low=0)
    """Processes that decode images of a set that streams; none: one for each core that this process may use."""


@dataclass(kw_only=True)
class AugmentConfig:
    policy: str = "autoaugment"
    """A policy and its options: `autoaugment`, `simaugment blur=0 crop_scale=0.2,1`, `crop-flip padding=2`, …

    `autoaugment` has torchvision's operations, `autoaugment-authors` those in the code of the paper's authors.
    """
    views: int = ranged(2, low=1)
    """Augmented views of each image in a batch."""
    per_view: tuple[str, ...] = ()
    """Instead of one policy for all, one for each view: `simaugment; simaugment; simaugment size=16 blur=0`."""


@dataclass(kw_only=True)
class ModelConfig:
    encoder: str = "resnet50"
    """resnet18, resnet34, resnet50, resnet101, resnet-mini, or any timm model."""
    stem: str = one_of("auto", STEMS)
    """Of a ResNet: `cifar` is a 3×3 convolution without pooling, `imagenet` timm's own; `auto`: by image size."""
    norm: str = one_of("batch", NORMS)
    """Of a ResNet: `group` for batches too small for batch-norm."""


@dataclass(kw_only=True)
class MethodConfig:
    name: str = "tcl"
    """How the encoder learns: `tcl`, `supcon`, `simclr`, `byol`, … ; `contune recipes` shows those with a recipe."""
    settings: Method.Settings = field(default_factory=lambda: find_method("tcl").Settings())
    """The knobs of that method: `method.k1`, `method.temperature`, …"""


@dataclass(kw_only=True)
class OptimConfig:
    name: str = one_of("sgd", ("sgd", "lars", "adam", "adamw"))
    """The optimizer; `lars` is for large batches without labels."""
    epochs: int = ranged(100, low=0)
    """Times that every training image is seen, in `augment.views` views each; 0 measures an untrained encoder."""
    batch_images: int = ranged(128, low=1)
    """Images in a batch over all processes; the loss sees batch_images × augment.views embeddings."""
    lr: float = ranged(0.1, above=0.0)
    """The highest learning rate, for this batch as it is: nothing is scaled behind your back."""
    momentum: float = ranged(0.9, low=0.0, high=1.0)
    """Of SGD and LARS."""
    weight_decay: float = ranged(1e-4, low=0.0)
    """LARS leaves out biases and normalisation."""
    schedule: str = one_of("cosine", ("cosine", "cosine-epoch", "constant"))
    """`cosine` falls at every step; `cosine-epoch` at every epoch, one late, as the authors' code does."""
    warmup_epochs: float = ranged(0.0, low=0.0)
    """Epochs in which the rate rises to lr."""
    final_lr: float = ranged(0.0, low=0.0, high=1.0)
    """Where the cosine ends, as a share of lr."""


@dataclass(kw_only=True)
class EvalConfig:
    split: str = one_of("test", ("test", "val"))
    """What accuracies are measured on."""
    linear: str = one_of("fast", ("fast", "paper", "none"))
    """`fast`: logistic regression on cached features; `paper`: that, and 50 augmented epochs on the frozen encoder."""
    linear_epochs: int = ranged(50, low=1)
    """Of the `paper` probe."""
    linear_lr: float = ranged(0.5, above=0.0)
    """Of the `paper` probe, falling by a cosine."""
    linear_batch: int = ranged(256, low=1)
    """Images in a batch of the `paper` probe."""
    knn_k: int = ranged(20, low=1)
    """Neighbours that vote."""
    knn_temperature: float = ranged(0.1, above=0.0)
    """How much more a nearer neighbour counts: exp(similarity / temperature)."""
    online: bool = False
    """Train a linear probe on detached features beside the encoder, and log its accuracy."""


@dataclass(kw_only=True)
class RunConfig:
    seed: int = ranged(0, low=0, high=2**63 - 1)
    """Of weights, order and augmentation: the same seed, the same run."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:1, mps"""
    precision: str = one_of("auto", ("auto", "fp32", "bf16"))
    """`auto`: bfloat16 on GPUs that have it, float32 elsewhere."""
    engine: str = one_of("auto", ENGINES)
    """`graph` replays a step as a CUDA graph; `fused` (ResNets) and `compile` join its kernels; `auto`: by length."""
    autotune: bool = True
    """Try cuDNN's convolutions, take the fastest. The choice, and with it the last bits, may differ between runs."""
    log_every: int | None = ranged(None, low=1)
    """Steps between lines of metrics.jsonl; none: 20, in runs below 1,000 steps fewer, so that they have 50 lines."""
    gradients: bool = True
    """With tcl, supcon and simclr, log how strongly positives pull and negatives push in the last step before it."""
    checkpoint_seconds: float = ranged(60.0, low=0.0)
    """Time between checkpoints; one is also written at the end of training."""
    on_nan: str = one_of("stop", ("stop", "skip"))
    """A step whose loss or gradient is not finite ends the run, or is left out; nonfinite.json has its batch."""
    tensorboard: bool = True
    """Write the log as TensorBoard events too."""
    report: bool = True
    """Write report.html at the end."""


MACHINE_SETTINGS = (
    "run.device",
    "run.engine",
    "run.autotune",
    "run.log_every",
    "run.gradients",
    "run.checkpoint_seconds",
    "run.on_nan",
    "run.tensorboard",
    "run.report",
    "data.workers",
)
"""Settings that say where and how a run is done, not what is computed: a run may go on with other values."""


@dataclass(kw_only=True)
class Config:
    data: DataConfig = field(default_factory=DataConfig)
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    method: MethodConfig = field(default_factory=MethodConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    eval: EvalConfig = field(default_factory=EvalConfig)
    run: RunConfig = field(default_factory=RunConfig)

    def keys(self) -> list[str]:
        return [f"{section}.{name}" for section, values in self.to_dict().items() for name in values]

    def override(self, assignments: str | Iterable[str]) -> "Config":
        """Applies KEY=VALUE texts, in place, then checks the whole. The method comes first: it brings its knobs."""
        pairs = split_assignments(assignments)
        for key, text in sorted(pairs, key=lambda pair: pair[0] != "method.name"):
            self._assign(key, text)
        return self.check()

    def _assign(self, key: str, text: str) -> None:
        section, _, name = key.partition(".")
        if key not in self.keys():
            raise unknown("setting", key, self.keys())
        if section != "method":
            assign(getattr(self, section), name, text, key)
        elif name == "name":
            self.use_method(text)
        else:
            assign(self.method.settings, name, text, key)

    def use_method(self, name: str) -> None:
        """Another method, with its own defaults."""
        if name != self.method.name:
            self.method = MethodConfig(name=name, settings=find_method(name).Settings())

    def check(self) -> "Config":
        for section in fields(self):
            if section.name != "method":
                check(getattr(self, section.name), f"{section.name}.")
        check(self.method.settings, "method.")
        if self.data.channels not in (None, 1, 3):
            raise UserError(f"data.channels must be 1 or 3, got {self.data.channels}")
        if self.augment.per_view and len(self.augment.per_view) != self.augment.views:
            raise UserError(
                f"augment.per_view names {len(self.augment.per_view)} policies for augment.views={self.augment.views}; "
                "give one for each view"
            )
        return self

    def to_dict(self) -> dict[str, dict[str, Any]]:
        tree = asdict(self)
        tree["method"] = {"name": self.method.name, **asdict(self.method.settings)}
        return tree

    @classmethod
    def from_dict(cls, tree: dict[str, dict[str, Any]]) -> "Config":
        config = cls()
        if not isinstance(tree, dict) or not all(isinstance(values, dict) for values in tree.values()):
            raise UserError(f"a config is sections of settings, got {shortened(tree)}")
        for section, values in tree.items():
            if section not in {f.name for f in fields(cls)}:
                raise unknown("section", section, [f.name for f in fields(cls)])
            if section == "method":
                knobs = dict(values)
                config.use_method(str(knobs.pop("name", config.method.name)))
                fill(config.method.settings, knobs, "method.")
            else:
                fill(getattr(config, section), values, f"{section}.")
        return config.check()

    def save(self, path: str | Path) -> None:
        write_whole(Path(path), json.dumps(self.to_dict(), indent=2) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> "Config":
        try:
            return cls.from_dict(json.loads(Path(path).read_text(encoding="utf-8")))
        except OSError as error:
            raise UserError(
                f"cannot read a config at {path}: {error.strerror}; give the config.json of a run folder"
            ) from None
        except (ValueError, RecursionError) as error:
            raise UserError(f"{path} is not a config that contune wrote: {error}") from None

    def differences(self, other: "Config") -> list[str]:
        """The keys, machine settings aside, in which two configs differ."""
        mine, theirs = self._flat(), other._flat()
        return [
            k for k in sorted(mine.keys() | theirs.keys()) if mine.get(k) != theirs.get(k) and k not in MACHINE_SETTINGS
        ]

    def fingerprint(self) -> str:
        """Eight characters that stand for what is computed."""
        meaning = {k: v for k, v in self._flat().items() if k not in MACHINE_SETTINGS}
        return hashlib.sha256(json.dumps(meaning, sort_keys=True).encode()).hexdigest()[:8]

    def _flat(self) -> dict[str, Any]:
        return {
            f"{section}.{name}": value for section, values in self.to_dict().items() for name, value in values.items()
        }
