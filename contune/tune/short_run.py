"""A run as a trial of k1 and k2: shorter, measured on the validation split, looked at on its way.

Shapes: N training images, M validation images, D features, K classes.
"""

import json
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from contune.config import Config
from contune.data.images import ImageSet
from contune.data.loader import Loader
from contune.errors import UserError
from contune.eval.features import extract_features
from contune.eval.probes import knn_scores
from contune.files import write_whole
from contune.methods import Method
from contune.report.plots import evenly_spaced
from contune.run import RunFolder
from contune.train.checkpoint import CHECKPOINT, PREVIOUS
from contune.train.session import train
from contune.train.setup import Setup
from contune.train.trainer import Trainer

FEWEST_EPOCHS, SHARE_OF_EPOCHS = 10, 5
VAL_FRACTION = 0.2
LOOKS = (0.4, 0.6, 0.8)
"""How much of a run is done when it is looked at."""
MOST_IMAGES = 10_000
"""Of either split, for a look."""
SEEN = "seen.json"


def default_epochs(epochs: int) -> int:
    """Of a short run of a recipe that has so many."""
    return min(epochs, max(FEWEST_EPOCHS, epochs // SHARE_OF_EPOCHS))


def short_config(config: Config, epochs: int) -> Config:
    """The same run in fewer epochs, with training images held out to measure on where the data has no such split."""
    short = deepcopy(config)
    optim = short.optim
    if optim.epochs:
        optim.warmup_epochs = round(optim.warmup_epochs * epochs / optim.epochs, 3)
    optim.epochs = epochs
    short.data.val_fraction = short.data.val_fraction or VAL_FRACTION
    short.eval.split, short.eval.linear = "val", "fast"
    short.run.report, short.run.tensorboard = False, False
    return short.check()


def look_epochs(epochs: int) -> list[int]:
    return sorted({round(share * epochs) for share in LOOKS} - {0, epochs})


@dataclass(frozen=True)
class ShortRun:
    """Trains and measures; where kNN is below what `stop_below` asks for after an epoch, that is the end of it."""

    stop_below: Mapping[int, float] = field(default_factory=dict)

    def __call__(self, config: Config, folder: RunFolder) -> dict[str, Any]:
        try:
            result = train(config, folder, self._trainer)
        except GivenUp as given_up:
            result = {"stopped_at": given_up.epoch, "measures": [], "config": config.to_dict()}
        result["seen"] = read_seen(folder)
        folder.write_result(result)
        for name in (CHECKPOINT, PREVIOUS):
            (folder.path / name).unlink(missing_ok=True)
        return result

    def _trainer(self, setup: Setup, method: Method, loader: Loader, folder: RunFolder) -> Trainer:
        return LookingTrainer(setup, method, loader, folder, self.stop_below)


class GivenUp(Exception):  # noqa: N818  # it is no error
    def __init__(self, epoch: int) -> None:
        self.epoch = epoch


class LookingTrainer(Trainer):
    """Measures kNN on the validation split a few times on the way."""

    def __init__(
        self, setup: Setup, method: Method, loader: Loader, folder: RunFolder, stop_below: Mapping[int, float]
    ) -> None:
        super().__init__(setup, method, loader, folder)
        val = setup.eval_set()
        if val is None or val.labels is None or loader.labels_N is None:
            raise UserError(
                f"{setup.dataset.name} has no labelled images to measure k1 and k2 on; tuning takes labels, "
                "also for a method that learns without them"
            )
        self.stop_below, self.looks = stop_below, look_epochs(self.optim.epochs)
        # Loaders of their own: the one that trains is in the middle of an epoch.
        self.bank, self.held = (setup.loader(_some(images), "images") for images in (setup.dataset.train, val))

    def take_step(self, images_BCHW: Tensor, labels_B: Tensor | None) -> dict[str, Tensor]:
        metrics = super().take_step(images_BCHW, labels_B)
        epoch, rest = divmod(self.step, self.steps_per_epoch)
        if rest == 0 and epoch in self.looks:
            self._look(epoch)
        return metrics

    def _look(self, epoch: int) -> None:
        seen = read_seen(self.folder) | {str(epoch): self._knn_percent()}
        write_whole(self.folder.path / SEEN, json.dumps(seen))
        if max(seen.values()) < self.stop_below.get(epoch, 0.0):
            raise GivenUp(epoch)

    def _knn_percent(self) -> float:
        train_ND, val_MD = (
            extract_features(self.method.encoder, loader, self.setup.spec, autocast=self.setup.autocast)
            for loader in (self.bank, self.held)
        )
        self.method.train()
        assert self.bank.labels_N is not None
        assert self.held.labels_N is not None
        knobs = self.setup.config.eval
        votes_MK = knn_scores(
            train_ND,
            self.bank.labels_N,
            val_MD,
            self.setup.num_classes,
            k=knobs.knn_k,
            temperature=knobs.knn_temperature,
        )
        right_M = votes_MK.argmax(dim=1) == self.held.labels_N.to(votes_MK.device)
        return 100 * right_M.double().mean().item()


def read_seen(folder: RunFolder) -> dict[str, float]:
    path = folder.path / SEEN
    values: dict[str, float] = json.loads(path.read_text()) if path.exists() else {}
    return values


def _some(images: ImageSet) -> ImageSet:
    return images if len(images) <= MOST_IMAGES else images.subset(evenly_spaced(len(images), MOST_IMAGES))
