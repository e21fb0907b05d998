"""Contrastive training as a scikit-learn transformer: N images in, features (N, D) out."""

import json
import warnings
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import RLock
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from contune.config import Config
from contune.console import progress, redirected
from contune.data import ImageSet
from contune.data.images import build_loader
from contune.data.memory import open_memory
from contune.device import choose_device
from contune.errors import UserError
from contune.eval.probes import extract_features
from contune.files import write_atomic
from contune.models import ImageEncoder, load_encoder, save_encoder
from contune.models.saved import ENCODER_FILE, own_name
from contune.recipes import for_method
from contune.run import RunFolder
from contune.training.log import MetricsLog, read_metrics
from contune.training.setup import Own, build_method, open_setup
from contune.training.trainer import Trainer

DEFAULT_SIZE = 128  # side in pixels for pictures and files, whose own sizes differ
ESTIMATOR_FILE = "estimator.json"
_FIT_LOCK = RLock()


@dataclass(eq=False, repr=False)
class ContrastiveEncoder(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]  # sklearn has no types
    """An image encoder that `fit` trains by contrastive learning. `transform` returns its features.

    Images are arrays or tensors, (N, H, W), (N, H, W, C) or (N, C, H, W), of uint8 or of floats from 0 to 1, a list of
    PIL pictures or paths, the path of a folder, or a dataset that `contune.train` takes. The method uses labels `y` if
    you pass them; a folder of class folders brings its own. Without labels, TCL learns from three views of each image.

    encoder: `resnet18`, `resnet-mini`, … or any timm model; or your own module, of which `fit` trains a copy.
    weights: start from a run folder, an export, a file with a state dict, or timm's weights by name. The network, its
        input size and its normalization follow them.
    method: `tcl`, `supcon`, `simclr`, `byol`, … as in `contune train`.
    batch_size, learning_rate, augmentation, views: None uses the recipe for this method.
    image_size: side in pixels of the encoder's input; None uses the size of an array, and 128 for pictures and files.
    settings: other settings by key, such as {"method.k1": 500, "optim.weight_decay": 1e-3}.
    device: `auto`, `cpu`, `cuda`, …
    random_state: an int makes the result reproducible.
    verbose: show progress on stderr.

    After `fit`: `encoder_` (a torch Module), `classes_` if there are labels, `history_` (metrics by step), `config_`.
    """

    encoder: str | torch.nn.Module = "resnet18"
    _: KW_ONLY
    weights: str | None = None
    method: str = "tcl"
    epochs: int = 100
    batch_size: int | None = None
    learning_rate: float | None = None
    image_size: int | None = None
    augmentation: str | None = None
    views: int | None = None
    settings: Mapping[str, Any] | None = None
    device: str = "auto"
    random_state: Any = None
    verbose: bool = False

    def fit(self, X: Any, y: Any = None) -> "ContrastiveEncoder":
        """Train the encoder on images, with labels if there are any."""
        classes = None
        if y is not None:
            targets = column_or_1d(y)
            check_classification_targets(targets)
            classes, indices = np.unique(targets, return_inverse=True)
            X = (X, indices)
        splits = open_memory(X)
        if splits.class_names and classes is None:
            classes = np.array(splits.class_names)
        devices = range(torch.cuda.device_count())
        # Training seeds torch: keep the caller's random state, and let threads take turns.
        with TemporaryDirectory() as folder, self._quiet(), _FIT_LOCK, torch.random.fork_rng(devices=devices):
            config = self._config(splits.train)
            module = self.encoder if isinstance(self.encoder, torch.nn.Module) else None
            setup = open_setup(config, own=Own(data=splits, encoder=module))
            method = build_method(setup)
            trainer = Trainer(setup, method, setup.loader(setup.dataset.train, "images"), RunFolder(folder))
            with MetricsLog(Path(folder), resume_step=0) as log:
                trainer.fit(log)
            self.history_ = read_metrics(Path(folder))
        self.config_ = config.to_dict()
        self.__dict__.pop("classes_", None)  # from an earlier fit
        if classes is not None:
            self.classes_ = classes
        self.encoder_ = ImageEncoder(method.encoder, setup.spec).eval()
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Features (N, D), float32, of images in any form that `fit` accepts and of any size."""
        check_is_fitted(self, "encoder_")
        images, spec, device = open_memory(X).train, self.encoder_.spec, choose_device(self.device)
        loader = build_loader(images, spec, device, resident_gib=Config().data.resident_gib)
        with self._quiet(), progress("features", len(loader), unit="image") as advance:
            features_ND = extract_features(self.encoder_.backbone.to(device), loader, spec, advance=advance)
        return features_ND.cpu().numpy()

    def save(self, folder: str | Path) -> None:
        """Write `encoder.safetensors`, which `contune.load_encoder` also reads, and the parameters of this object."""
        check_is_fitted(self, "encoder_")
        folder = Path(folder)
        if RunFolder(folder).config_file.exists():
            raise UserError(f"{folder} holds a run, whose encoder this would replace; choose another folder")
        seed = int(self.random_state) if isinstance(self.random_state, int | np.integer) else None
        encoder = self.encoder if isinstance(self.encoder, str) else self.encoder_.spec.encoder
        parameters = self.get_params() | {"random_state": seed, "encoder": encoder}
        classes = self.classes_.tolist() if hasattr(self, "classes_") else None
        values = {"parameters": parameters, "classes": classes, "config": self.config_, "history": self.history_}
        text = json.dumps(values, indent=2, default=np.generic.item) + "\n"
        save_encoder(folder / ENCODER_FILE, self.encoder_.backbone, self.encoder_.spec)
        write_atomic(folder / ESTIMATOR_FILE, text)

    @classmethod
    def load(cls, folder: str | Path, encoder: torch.nn.Module | None = None) -> "ContrastiveEncoder":
        """A fitted estimator from a folder that `save` wrote. If it has a module of your own, pass one as `encoder`."""
        if not (file := Path(folder) / ESTIMATOR_FILE).exists():
            raise UserError(f"{str(folder)!r} has no {ESTIMATOR_FILE}; name a folder that `save` wrote")
        values = json.loads(file.read_text(encoding="utf-8"))
        estimator = cls(**values["parameters"])
        estimator.config_, estimator.history_ = values["config"], values["history"]
        if values["classes"] is not None:
            estimator.classes_ = np.array(values["classes"])
        estimator.encoder_ = load_encoder(folder, encoder)
        estimator.encoder = encoder or estimator.encoder
        return estimator

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.three_d_array = False, True
        tags.target_tags.required = False
        return tags

    @property
    def _n_features_out(self) -> int:
        return self.encoder_.num_features  # for get_feature_names_out

    def _config(self, images: ImageSet) -> Config:
        size, pixels = self.image_size, images.images
        if size is None:
            size = min(pixels.shape[2:]) if isinstance(pixels, torch.Tensor) else DEFAULT_SIZE
        has_labels, pretrained = images.labels is not None, self.weights is not None
        config = for_method(self.method, has_labels=has_labels, size=size, pretrained=pretrained)
        config.run.loggers, config.eval.online = (), False
        config.data.val_fraction = config.data.test_fraction = 0.0
        config.optim.batch_images = min(config.optim.batch_images, len(images))
        if self.views is not None:
            config.augment.per_view = ()  # one policy for all views
        parameters = {
            "data.image_size": "none" if pretrained and self.image_size is None else size,
            "model.weights": self.weights,
            "augment.policy": self.augmentation,
            "augment.views": self.views,
            "model.encoder": self.encoder if isinstance(self.encoder, str) else own_name(self.encoder),
            "run.engine": None if isinstance(self.encoder, str) else "eager",
            "optim.epochs": self.epochs,
            "optim.batch_images": self.batch_size,
            "optim.lr": self.learning_rate,
            "run.device": self.device,
            "run.seed": check_random_state(self.random_state).randint(np.iinfo(np.int32).max),
        }
        changed = {key: value for key, value in parameters.items() if value is not None} | dict(self.settings or {})
        return config.override(changed)

    def _quiet(self) -> AbstractContextManager[None]:
        """Unless verbose: show no progress, and turn what training says into warnings."""
        return nullcontext() if self.verbose else redirected(lambda report: None, warnings.warn)
