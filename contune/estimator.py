"""Contrastive training as a scikit-learn transformer: images in, features out.

Shapes: N images, D features.
"""

import json
import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import RLock
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_consistent_length, check_random_state, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from contune.config import Config
from contune.console import progress, report_to, said_to
from contune.data import Dataset, ImageSet, TensorImages
from contune.data.given import given_images
from contune.data.loader import build_loader
from contune.data.traits import measure
from contune.device import choose_device
from contune.errors import UserError
from contune.eval.features import extract_features
from contune.files import make_folder_of, write_whole
from contune.models import ImageEncoder, load_encoder, save_encoder
from contune.models.saved import ENCODER_FILE
from contune.recipes.images import for_method
from contune.run import RunFolder
from contune.train.log import read_metrics
from contune.train.setup import build_method, setup_for
from contune.train.trainer import Trainer

SIZE_OF_PICTURES = 128
"""Pixels a side for pictures and files, whose own sizes differ."""
ESTIMATOR_FILE = "estimator.json"
_ONE_AT_A_TIME = RLock()


class ContrastiveEncoder(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]  # sklearn has no types
    """An image encoder that `fit` trains by contrastive learning; `transform` gives its features.

    Images are a uint8 array (N, H, W) or (N, H, W, C), a list of PIL pictures or paths, or the path of a folder.
    With labels `y` the method learns from them. Without, TCL learns from three views of each image; a folder of
    class folders brings labels by itself.

    encoder: a name such as `resnet18` or `resnet-mini`, or of any timm model.
    method: `tcl`, `supcon`, `simclr`, `byol`, … as `contune train` has them.
    batch_size, learning_rate, augmentation, views: None takes those of the recipe for this method.
    image_size: pixels a side that the encoder sees; None: those of an array, 128 for pictures and files.
    settings: further ones by name, such as {"method.k1": 500, "optim.weight_decay": 1e-3}.
    device: `auto`, `cpu`, `cuda`, …
    random_state: an int for the same result every time.
    verbose: show progress on stderr.

    After `fit`: `encoder_` (a torch Module), `classes_` where there were labels, `history_` (metrics by step),
    `config_` (all settings as they were).
    """

    def __init__(
        self,
        encoder: str = "resnet18",
        *,
        method: str = "tcl",
        epochs: int = 100,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        image_size: int | None = None,
        augmentation: str | None = None,
        views: int | None = None,
        settings: Mapping[str, Any] | None = None,
        device: str = "auto",
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.encoder = encoder
        self.method = method
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.image_size = image_size
        self.augmentation = augmentation
        self.views = views
        self.settings = settings
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None) -> "ContrastiveEncoder":
        """Trains the encoder on images, with labels if there are any."""
        images, classes = _labelled(X, y)
        with TemporaryDirectory() as folder, self._manners(), own_random_numbers():
            traits = measure(images)
            own_size = traits.image_size if _is_array(images) else SIZE_OF_PICTURES
            size = own_size if self.image_size is None else self.image_size
            config = self._config(images, size)
            names = () if classes is None else tuple(map(str, classes))
            dataset = Dataset(
                name="this data", train=images, test=None, val=None, class_names=names, image_size=size,
                channels=traits.channels, mean=traits.mean, std=traits.std,
            )  # fmt: skip
            setup = setup_for(config, dataset)
            method = build_method(setup)
            Trainer(setup, method, setup.loader(images, "images"), RunFolder(folder)).fit()
            self.history_ = read_metrics(Path(folder))
        self.config_ = config.to_dict()
        if classes is not None:
            self.classes_ = classes
        elif hasattr(self, "classes_"):  # of an earlier fit
            del self.classes_
        self._keep(ImageEncoder(method.encoder, setup.spec))
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Features (N, D), float32, of images in any of the forms that `fit` takes, whatever their size."""
        check_is_fitted(self, "encoder_")
        images, spec = given_images(X)[0], self.encoder_.spec
        device = choose_device(self.device)
        loader = build_loader(
            images, size=spec.image_size, channels=spec.channels, device=device, resident_gib=Config().data.resident_gib
        )
        with self._manners(), progress("features", len(loader), unit="images") as advance:
            features_ND = extract_features(self.encoder_.backbone.to(device), loader, spec, advance=advance)
        return features_ND.cpu().numpy()

    def save(self, folder: str | Path) -> None:
        """Writes `encoder.safetensors`, which `contune.load_encoder` reads too, and the parameters of this object."""
        check_is_fitted(self, "encoder_")
        folder = Path(folder)
        if RunFolder(folder).config_file.exists():
            raise UserError(f"{folder} holds a run, whose encoder this would replace; give another folder")
        classes = self.classes_.tolist() if hasattr(self, "classes_") else None
        parameters = self.get_params() | {"random_state": self._plain_random_state()}
        values = {"parameters": parameters, "classes": classes, "config": self.config_, "history": self.history_}
        text = json.dumps(values, indent=2, default=_plain) + "\n"
        make_folder_of(folder / ENCODER_FILE)
        save_encoder(folder / ENCODER_FILE, self.encoder_.backbone, self.encoder_.spec)
        write_whole(folder / ESTIMATOR_FILE, text)

    @classmethod
    def load(cls, folder: str | Path) -> "ContrastiveEncoder":
        """What `save` wrote, fitted."""
        file = Path(folder) / ESTIMATOR_FILE
        if not file.exists():
            raise UserError(f"no {ESTIMATOR_FILE} in {folder}; ContrastiveEncoder.save writes one")
        try:
            values = json.loads(file.read_text(encoding="utf-8"))
            estimator = cls(**values["parameters"])
            estimator.config_, estimator.history_ = values["config"], values["history"]
            if values["classes"] is not None:
                estimator.classes_ = np.array(values["classes"])
        except (ValueError, KeyError, TypeError):
            raise UserError(f"{file} is not one that ContrastiveEncoder.save wrote") from None
        estimator._keep(load_encoder(folder))
        return estimator

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.three_d_array = False, True
        tags.target_tags.required = False
        return tags

    def _keep(self, encoder: ImageEncoder) -> None:
        self.encoder_ = encoder.eval()
        self._n_features_out = encoder.num_features  # what get_feature_names_out counts to

    def _config(self, images: ImageSet, size: int) -> Config:
        config = for_method(self.method, has_labels=images.labels is not None, size=size)
        if self.augmentation is not None or self.views is not None:
            config.augment.per_view = ()  # one policy for all views, as a person says it here
        given = {
            "data.image_size": size,
            "augment.policy": self.augmentation,
            "augment.views": self.views,
            "model.encoder": self.encoder,
            "optim.epochs": self.epochs,
            "optim.batch_images": self._batch(config, len(images)),
            "optim.lr": self.learning_rate,
            "run.device": self.device,
            "run.seed": check_random_state(self.random_state).randint(np.iinfo(np.int32).max),
            "run.tensorboard": False,
            "eval.online": False,
        }
        settled = {key: value for key, value in given.items() if value is not None} | dict(self.settings or {})
        return config.override(f"{key}={'none' if value is None else value}" for key, value in settled.items())

    def _batch(self, config: Config, num_images: int) -> int:
        if self.batch_size is not None and self.batch_size > num_images:
            raise UserError(f"batch_size={self.batch_size} is more than the {num_images} images; lower it")
        return min(config.optim.batch_images, num_images) if self.batch_size is None else self.batch_size

    def _plain_random_state(self) -> int | None:
        return int(self.random_state) if isinstance(self.random_state, int | np.integer) else None

    def _manners(self) -> AbstractContextManager[None]:
        return nullcontext() if self.verbose else silence()


def _plain(value: Any) -> Any:
    """A number of numpy's for JSON."""
    if isinstance(value, np.generic) and not isinstance(value, np.datetime64 | np.timedelta64):
        return value.item()
    raise UserError(f"{value!r} cannot be saved: parameters and classes have to be numbers or text")


def _labelled(X: Any, y: Any) -> tuple[ImageSet, np.ndarray | None]:
    """The images with labels, and what the labels stand for; None where there are none."""
    images, class_names = given_images(X)
    if y is None:
        return images, np.array(class_names) if class_names else None
    check_consistent_length(images, y)
    targets = column_or_1d(y)
    check_classification_targets(targets)
    classes, positions = np.unique(targets, return_inverse=True)
    return ImageSet(images=images.images, labels=torch.from_numpy(positions).long(), names=images.names), classes


def _is_array(images: ImageSet) -> bool:
    return isinstance(images.images, TensorImages)


@contextmanager
def silence() -> Iterator[None]:
    """Show no progress; turn what training says into one warning at the end."""
    remarks: list[str] = []
    with report_to(lambda report: None), said_to(remarks.append):
        yield
    if remarks:
        warnings.warn("\n".join(remarks).strip(), stacklevel=4)


@contextmanager
def own_random_numbers() -> Iterator[None]:
    """Training seeds torch; keep the caller's random state unchanged. Threads take turns."""
    devices = range(torch.cuda.device_count()) if torch.cuda.is_available() else []
    with _ONE_AT_A_TIME, torch.random.fork_rng(devices=devices):
        yield
