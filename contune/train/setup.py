"""From a config to the parts of a run: data on the device, augmentation, encoder, method."""

from dataclasses import dataclass
from pathlib import Path

import torch

from contune import distributed
from contune.config import AugmentConfig, Config, DataConfig
from contune.console import plural, progress
from contune.data import Dataset, ImageSet, load_dataset
from contune.data.augment import Augmenter
from contune.data.augment.spec import policy_from_text
from contune.data.datasets import no_such_place
from contune.data.imageset import where_labels_may_be
from contune.data.loader import Loader, build_loader
from contune.data.split import way_to_hold_out
from contune.device import Autocast, autocast_dtype, choose_autocast, choose_convolutions, choose_device
from contune.errors import UserError
from contune.methods import Method, find_method
from contune.models import EncoderSpec
from contune.models.encoders import check_encoder_name


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What training and evaluation share."""

    config: Config
    dataset: Dataset
    spec: EncoderSpec
    device: torch.device
    autocast: Autocast

    @property
    def num_classes(self) -> int:
        return len(self.dataset.class_names)

    @property
    def view_dtype(self) -> torch.dtype:
        """Of augmented views on a GPU: what the encoder's first convolution would make of them anyway."""
        dtype = autocast_dtype(self.config.run.precision, self.device) if self.device.type == "cuda" else None
        return dtype or torch.float32

    def loader(self, images: ImageSet, title: str) -> Loader:
        data = self.config.data
        with progress(title, len(images), unit="images") as advance:
            return build_loader(
                images,
                size=self.spec.image_size,
                channels=self.spec.channels,
                device=self.device,
                resident_gib=data.resident_gib,
                workers=data.workers,
                progress=lambda done, total: advance(done, ""),
            )

    def augmenter(self, policies: list[str]) -> Augmenter:
        """Views by policies as a config writes them; the same text is the same object, computed together."""
        built = {
            text: policy_from_text(text, image_size=self.spec.image_size, channels=self.spec.channels)
            for text in dict.fromkeys(policies)
        }
        return Augmenter([built[text] for text in policies], self.spec.mean, self.spec.std)

    def eval_set(self) -> ImageSet | None:
        """None where nothing is held out to test on."""
        if self.config.eval.split == "test":
            return self.dataset.test
        if self.dataset.val is None:
            raise UserError(f"eval.split=val needs a validation split; {self.way_to_measure()}")
        return self.dataset.val

    def where_labels_may_be(self) -> str:
        """For a person whose parquet has no column that is called so."""
        return where_labels_may_be(self.dataset.maybe_labels, "data.label_column=")

    def way_to_measure(self) -> str:
        """For a person whose data has nothing to measure on."""
        data, split, train = self.config.data, self.config.eval.split, self.dataset.train
        fraction = data.test_fraction if split == "test" else data.val_fraction
        return way_to_hold_out(f"data.{split}_fraction", train.labels, len(train), fraction)


def open_setup(config: Config, spec: EncoderSpec | None = None) -> Setup:
    """Loads the data a config names. A `spec` given, that of a trained encoder, decides how images are fed."""
    choose_device(config.run.device)  # these before the data, which may take a while
    if spec is None:
        check_encoder_name(config.model.encoder)
    return setup_for(config, open_dataset(config.data), spec)


def setup_for(config: Config, dataset: Dataset, spec: EncoderSpec | None = None) -> Setup:
    """As `open_setup`, for data that is open already; what the config says of its name and place is not asked."""
    device = choose_device(config.run.device)
    choose_convolutions(autotune=config.run.autotune)
    return Setup(
        config=config,
        dataset=dataset,
        spec=spec or _spec(config, dataset),
        device=device,
        autocast=choose_autocast(config.run.precision, device),
    )


def open_dataset(data: DataConfig) -> Dataset:
    if data.name == "images" and data.path is None:
        raise UserError("data.name=images needs to know where they are; add data.path=FOLDER or a parquet file")
    if data.name == "digits" and data.path is not None:
        raise UserError(
            f"digits come with scikit-learn and have no path, so data.path={data.path} would go unused; "
            "to train on images of your own take the recipe `images`"
        )
    own_images = data.name == "images"
    assert data.path is not None or not own_images
    if own_images and not Path(str(data.path)).expanduser().exists():
        raise no_such_place(str(data.path))
    return load_dataset(
        str(data.path) if own_images else data.name,
        root=None if own_images else data.path,
        val_fraction=data.val_fraction,
        test_fraction=data.test_fraction,
        classes=data.classes,
        label_column=data.label_column,
        broken=data.broken,
    )


def view_policies(augment: AugmentConfig) -> list[str]:
    """The policy of each view, as a config writes it."""
    return list(augment.per_view) or [augment.policy] * augment.views


def build_method(setup: Setup) -> Method:
    """The method on its device, with weights that depend on the seed alone."""
    config = setup.config
    method_class = find_method(config.method.name)
    settings = config.method.settings
    if settings.needs_labels:
        _check_labels(setup)
    torch.manual_seed(config.run.seed)
    encoder = setup.spec.build()
    method = method_class(encoder, int(encoder.num_features), setup.num_classes, settings)  # type: ignore[arg-type]  # timm models carry an int
    memory_format = torch.channels_last if setup.device.type == "cuda" else torch.contiguous_format
    return method.to(setup.device, memory_format=memory_format)  # type: ignore[call-overload,no-any-return]  # torch types only the 4-D form


def local_batch(config: Config, num_images: int) -> int:
    """Images of a batch that this process computes."""
    batch, world = config.optim.batch_images, distributed.world_size()
    if batch > num_images:
        raise UserError(f"optim.batch_images={batch} is more than the {plural(num_images, 'training image')}; lower it")
    if batch % world:
        raise UserError(f"optim.batch_images={batch} cannot be shared by {world} processes; take a multiple of {world}")
    return batch // world


def _spec(config: Config, dataset: Dataset) -> EncoderSpec:
    channels = config.data.channels or dataset.channels
    mean, std = dataset.mean, dataset.std
    if channels != len(mean):
        mean, std = (sum(mean) / len(mean),) * channels, (sum(std) / len(std),) * channels
    return EncoderSpec(
        encoder=config.model.encoder,
        stem=config.model.stem,
        norm=config.model.norm,
        image_size=config.data.image_size or dataset.image_size,
        channels=channels,
        mean=mean,
        std=std,
    )


def _check_labels(setup: Setup) -> None:
    name, labels = setup.config.method.name, setup.dataset.train.labels
    if labels is None:
        what = (
            f"no column of a usual name; {setup.where_labels_may_be()}, or" if setup.dataset.maybe_labels else "none;"
        )
        raise UserError(
            f"method {name} learns from labels and {setup.dataset.name} has {what} "
            "train without labels by the recipe images-ssl, or add method.name=simclr"
        )
    if len(labels.unique()) < 2:
        raise UserError(f"method {name} needs two classes or more and {setup.dataset.name} has one")
