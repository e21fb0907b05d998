"""From a config to the parts of a run: data on the device, augmentation, encoder, method, the order of images."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from contune import distributed
from contune.config import AugmentConfig, Config, DataConfig
from contune.console import plural, progress
from contune.data import Dataset, ImageSet, load_dataset
from contune.data.augment import Augmenter, Mix, Policy, build_policy
from contune.data.datasets import no_such_place, where_labels_may_be
from contune.data.decode import BrokenImageError
from contune.data.loader import Loader, build_loader
from contune.data.sampler import balanced_batches, shares, shuffled_order
from contune.device import Autocast, autocast_dtype, choose_autocast, choose_device
from contune.errors import UserError
from contune.files import expanded
from contune.methods import find_method
from contune.methods.base import Method
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
    view_dtype: torch.dtype
    """Of augmented views. On a GPU: the dtype that the encoder's first convolution casts them to anyway."""
    num_classes: int

    def loader(self, images: ImageSet, title: str) -> Loader:
        data = self.config.data
        with progress(title, len(images), unit="image") as advance:
            return build_loader(
                images.as_seen_with(self.spec.resize, self.spec.bits),
                size=self.spec.image_size,
                channels=self.spec.channels,
                device=self.device,
                resident_gib=data.resident_gib,
                workers=data.workers,
                progress=lambda done, total: advance(done, ""),
            )

    def augmenter(self, policies: list[str]) -> Augmenter:
        """Views by policies as a config writes them; views with the same text are computed together."""
        built: dict[str, Policy] = {}
        for text in policies:
            if text not in built:
                built[text] = build_policy(text, image_size=self.spec.image_size, channels=self.spec.channels)
        return Augmenter(list(map(built.__getitem__, policies)), self.spec.mean, self.spec.std)

    def mix(self) -> Mix | None:
        augment = self.config.augment
        if augment.mix == "none":
            return None
        return Mix(augment.mix, augment.mix_alpha, augment.mix_probability, self.num_classes)

    def eval_set(self) -> ImageSet | None:
        """The images of eval.split; None where there is no test split."""
        if self.config.eval.split == "test":
            return self.dataset.test
        if self.dataset.val is None:
            raise UserError(f"eval.split=val needs a validation split; {self.way_to_measure()}")
        return self.dataset.val

    def where_labels_may_be(self) -> str:
        """Advice for a parquet without a column of a usual label name."""
        return where_labels_may_be(self.dataset.maybe_labels, "data.label_column=")

    def way_to_measure(self) -> str:
        """Advice for data without a split to evaluate on."""
        data, split, train = self.config.data, self.config.eval.split, self.dataset.train
        fraction = data.test_fraction if split == "test" else data.val_fraction
        if not fraction:
            return f"set data.{split}_fraction=0.2"
        if train.labels is not None and train.labels.dim() == 1 and int(train.labels.bincount().max()) == 1:
            return "every class has only one image, so add images or a separate split"
        return f"data.{split}_fraction={fraction:g} of {len(train)} images is none, so raise it"


def open_setup(config: Config, spec: EncoderSpec | None = None) -> Setup:
    """Load the data that a config names. Pass the `spec` of a trained encoder to feed images as it was trained."""
    choose_device(config.run.device)  # before the data, which may take a while
    if spec is None:
        check_encoder_name(config.model.encoder)
    return setup_for(config, open_dataset(config.data), spec)


def setup_for(config: Config, dataset: Dataset, spec: EncoderSpec | None = None) -> Setup:
    """Like `open_setup`, for data that is already open: data.name and data.path are ignored."""
    device = choose_device(config.run.device)
    # cuDNN's deterministic algorithms only; with autotune it times them and picks the fastest.
    torch.backends.cudnn.benchmark = config.run.autotune
    torch.backends.cudnn.deterministic = True
    if spec is None:
        channels = config.data.channels or dataset.channels
        mean, std = dataset.mean, dataset.std
        if channels != len(mean):
            mean, std = (sum(mean) / len(mean),) * channels, (sum(std) / len(std),) * channels
        spec = EncoderSpec(
            encoder=config.model.encoder,
            stem=config.model.stem,
            norm=config.model.norm,
            image_size=config.data.image_size or dataset.image_size,
            channels=channels,
            mean=mean,
            std=std,
            resize=config.data.resize,
            bits=dataset.bits,
        )
    dtype = autocast_dtype(config.run.precision, device)
    return Setup(
        config=config,
        dataset=dataset,
        spec=spec,
        device=device,
        autocast=choose_autocast(config.run.precision, device),
        view_dtype=dtype if dtype and device.type == "cuda" else torch.float32,
        num_classes=len(dataset.class_names),
    )


def open_dataset(data: DataConfig) -> Dataset:
    own_images = data.name == "images"
    if own_images and data.path is None:
        raise UserError("data.name=images needs data.path: a folder of images or a parquet file")
    if data.name == "digits" and data.path is not None:
        raise UserError("digits come with scikit-learn and have no path; for your own images use the recipe `images`")
    if own_images and not expanded(str(data.path)).exists():
        raise no_such_place(str(data.path))
    return load_dataset(
        str(data.path) if own_images else data.name,
        root=None if own_images else data.path,
        val_fraction=data.val_fraction,
        test_fraction=data.test_fraction,
        classes=data.classes,
        label_column=data.label_column,
        broken=data.broken,
        full_range=data.range == "full",
    )


@contextmanager
def broken_image_hint() -> Iterator[None]:
    """Adds to the error about a broken image the setting that skips such files."""
    try:
        yield
    except BrokenImageError as error:
        raise UserError(f"{error}; data.broken=skip leaves such files out") from error


def build_method(setup: Setup) -> Method:
    """The method on its device, with weights that depend on the seed alone."""
    config, dataset = setup.config, setup.dataset
    name, settings = config.method.name, config.method.settings
    labels = dataset.train.labels
    if settings.needs_labels and labels is None:
        found = f"no column of a usual name; {setup.where_labels_may_be()}, or" if dataset.maybe_labels else "none;"
        raise UserError(
            f"method {name} learns from labels and {dataset.name} has {found} "
            "train without labels by the recipe images-ssl, or add method.name=simclr"
        )
    multilabel = labels is not None and labels.dim() == 2
    if settings.needs_labels and labels is not None and not multilabel and len(labels.unique()) < 2:
        raise UserError(f"method {name} needs two classes or more and {dataset.name} has one")
    torch.manual_seed(config.run.seed)
    encoder = setup.spec.build()
    method = find_method(name)(encoder, int(encoder.num_features), setup.num_classes, settings)  # type: ignore[arg-type]  # timm models carry an int
    method.multilabel, method.micro_batch = multilabel, config.optim.micro_batch
    memory_format = torch.channels_last if setup.device.type == "cuda" else torch.contiguous_format
    return method.to(setup.device, memory_format=memory_format)  # type: ignore[call-overload,no-any-return]  # torch types only the 4-D form


def view_policies(augment: AugmentConfig) -> list[str]:
    """The policy of each view, as a config writes it."""
    return list(augment.per_view) or [augment.policy] * augment.views


def local_batch(config: Config, num_images: int) -> int:
    """Images of a batch that this process computes."""
    batch, world = config.optim.batch_images, distributed.world_size()
    if batch > num_images:
        raise UserError(f"optim.batch_images={batch} is more than the {plural(num_images, 'training image')}; lower it")
    if batch % world:
        raise UserError(f"optim.batch_images={batch} is not a multiple of the {world} processes; make it one")
    return batch // world


def epoch_indices(config: Config, num_images: int, labels_N: Tensor | None, epoch: int) -> Tensor:
    """(steps, batch_images) indices of an epoch; images that do not fill a batch have their turn in another epoch."""
    batch, seed = config.optim.batch_images, config.run.seed
    if config.data.sampler == "shuffle":
        num_steps = num_images // batch
        return shuffled_order(num_images, seed, epoch)[: num_steps * batch].view(num_steps, batch)
    if labels_N is None or labels_N.dim() == 2:
        raise UserError("data.sampler=balanced needs one label per image; use data.sampler=shuffle")
    classes, images, extra = balanced_shares(config, labels_N)
    return balanced_batches(labels_N.cpu(), classes, images, seed, epoch, extra=extra)


def balanced_shares(config: Config, labels_N: Tensor) -> tuple[int, int, int]:
    """The `shares` of a batch of data.sampler=balanced."""
    batch, images, num_classes = config.optim.batch_images, config.data.images_per_class, len(labels_N.unique())
    if batch % images and batch // images < num_classes:
        raise UserError(
            f"data.sampler=balanced needs optim.batch_images to be a multiple of data.images_per_class, got {batch} "
            f"and {images}; set optim.batch_images={max(1, batch // images) * images}"
        )
    return shares(batch, images, num_classes)
