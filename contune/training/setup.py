"""From a config to the parts of a run: data on the device, augmentation, encoder, method, the order of images."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn

from contune import distributed
from contune.config import Config, DataConfig
from contune.console import plural, progress
from contune.data import ImageSet, load_dataset
from contune.data.augment import Augmenter, OwnTransform, Transform, build_policy
from contune.data.datasets import no_such_place
from contune.data.images import Dataset, Loader, Splits, Traits, build_loader
from contune.data.memory import MEMORY
from contune.data.sampler import balanced_batches, shares, shuffled_order
from contune.device import Autocast, autocast_dtype, choose_autocast, choose_device
from contune.errors import UserError
from contune.files import expanded
from contune.methods import find_method
from contune.methods.base import Method
from contune.models import EncoderSpec, ImageEncoder, find_weights
from contune.models.encoders import check_encoder_name
from contune.models.saved import adapt_channels


@dataclass(frozen=True, kw_only=True)
class Own:
    """Objects of the user, in place of what a config names."""

    data: Splits | None = None
    encoder: nn.Module | None = None
    transform: Transform | None = None


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
    weights: ImageEncoder | None
    """What training starts from; None: random weights."""
    own: Own

    def loader(self, images: ImageSet, title: str) -> Loader:
        gib, workers = self.config.data.resident_gib, self.config.data.workers
        with progress(title, len(images), unit="image") as advance:
            return build_loader(images, self.spec, self.device, resident_gib=gib, workers=workers, advance=advance)

    def augmenter(self, policies: Sequence[str] = ()) -> Augmenter:
        """A view by each policy, by default the config's own; views with the same text are computed together."""
        augment = self.config.augment
        policies = policies or augment.per_view or [augment.policy] * augment.views
        look: Any = {"image_size": self.spec.image_size, "channels": self.spec.channels}
        if self.own.transform is not None:
            same = OwnTransform(function=self.own.transform, **look)
            return Augmenter([same] * len(policies), self.spec.mean, self.spec.std)
        build = cache(partial(build_policy, **look))
        return Augmenter(list(map(build, policies)), self.spec.mean, self.spec.std)

    def eval_set(self) -> ImageSet | None:
        """The images of eval.split; None where there is no test split."""
        if self.config.eval.split == "test":
            return self.dataset.test
        if self.dataset.val is None:
            raise UserError("eval.split=val needs a validation split; set data.val_fraction=0.2 or more")
        return self.dataset.val


def open_setup(config: Config, spec: EncoderSpec | None = None, own: Own | None = None) -> Setup:
    """Load the data that a config names, unless you pass your `own`.

    spec: of a trained encoder, to feed images as it was trained.
    """
    own = own or Own()
    device = choose_device(config.run.device)  # before the data, which may take a while
    weights = None
    if own.encoder is not None and config.model.weights:
        raise UserError("model.weights is for encoders by name; load the weights of your own module before training")
    if spec is None and own.encoder is None:
        check_encoder_name(config.model.encoder)
        # The name of a timm model may end in that of its weights: resnet18.a1_in1k.
        if source := config.model.weights or (config.model.encoder if "." in config.model.encoder else None):
            weights = find_weights(source, config.model.encoder.partition(".")[0])
    dataset = open_dataset(config.data, own.data)
    # cuDNN's deterministic algorithms only; with autotune it times them and picks the fastest.
    torch.backends.cudnn.benchmark = config.run.autotune
    torch.backends.cudnn.deterministic = True
    if spec is None:
        model = config.model
        if weights is not None:
            seen = replace(weights.spec, bits=dataset.bits, ranges=dataset.ranges)
        else:
            traits: Any = {trait.name: getattr(dataset, trait.name) for trait in fields(Traits)}
            seen = EncoderSpec(encoder=model.encoder, stem=model.stem, norm=model.norm, **traits)
        channels = config.data.channels or dataset.channels
        # Gray and color images become what the weights have seen, unless data.channels says otherwise.
        if config.data.channels is None and {channels, seen.channels} <= {1, 3}:
            channels = seen.channels
        if weights is not None and channels != seen.channels != 3:
            raise UserError(f"the weights need data.channels={seen.channels}; only those for color can adapt")
        mean, std = (dataset.mean, dataset.std) if channels != seen.channels else (seen.mean, seen.std)
        if channels != len(mean):
            mean, std = (sum(mean) / len(mean),) * channels, (sum(std) / len(std),) * channels
        size = config.data.image_size or seen.image_size
        spec = replace(seen, image_size=size, channels=channels, mean=mean, std=std, resize=config.data.resize)
    dtype = autocast_dtype(config.run.precision, device)
    return Setup(
        config=config,
        dataset=dataset,
        spec=spec,
        device=device,
        autocast=choose_autocast(config.run.precision, device),
        view_dtype=dtype if dtype and device.type == "cuda" else torch.float32,
        num_classes=len(dataset.class_names),
        weights=weights,
        own=own,
    )


def open_dataset(data: DataConfig, splits: Splits | None = None) -> Dataset:
    """The data that a config names; `splits` instead if they are in memory."""
    own_images = data.name == "images" and splits is None
    if data.name == MEMORY and splits is None:
        raise UserError("the images of this run were in memory; name others with data.name=images data.path=FOLDER")
    if own_images and data.path is None:
        raise UserError("data.name=images needs data.path: a folder of images, a CSV or a parquet file")
    if data.name == "digits" and data.path is not None:
        raise UserError("digits come with scikit-learn and have no path; for your own images use the recipe `images`")
    if own_images and not expanded(str(data.path)).exists():
        raise no_such_place(str(data.path))
    return load_dataset(
        splits or (str(data.path) if own_images else data.name),
        root=None if own_images else data.path,
        val_fraction=data.val_fraction,
        test_fraction=data.test_fraction,
        unseen_classes=data.unseen_classes,
        classes=data.classes,
        label_column=data.label_column,
        broken=data.broken,
        full_range=data.range == "full",
        channels=data.channels,
        imbalance=data.imbalance,
    )


def build_method(setup: Setup) -> Method:
    """The method on its device. Weights that are not loaded depend on the seed alone."""
    config, dataset = setup.config, setup.dataset
    name, settings = config.method.name, config.method.settings
    labels = dataset.train.labels
    if settings.needs_labels and labels is None:
        fix = "make one folder per class, name a data.label_column, or use the recipe images-ssl"
        raise UserError(f"method {name} learns from labels and {dataset.name} has none; {fix}")
    multilabel = labels is not None and labels.dim() == 2
    if settings.needs_labels and labels is not None and not multilabel and len(labels.unique()) < 2:
        raise UserError(f"method {name} needs two classes or more and {dataset.name} has one")
    torch.manual_seed(config.run.seed)
    encoder = setup.spec.build(setup.own.encoder)
    if setup.weights is not None:
        try:
            encoder.load_state_dict(adapt_channels(setup.weights.backbone.state_dict(), encoder, setup.spec.channels))
        except RuntimeError as error:
            reason = str(error).splitlines()[-1].strip()
            raise UserError(f"the weights do not fit {setup.spec.encoder}: {reason}") from None
    method = find_method(name)(encoder, int(encoder.num_features), setup.num_classes, settings)  # type: ignore[arg-type]  # timm models carry an int
    method.multilabel, method.micro_batch = multilabel, config.optim.micro_batch
    if config.optim.balance == "weights":
        if labels is None or multilabel or not settings.needs_labels:
            raise UserError("optim.balance=weights needs one label per image and a method that learns from it")
        method.class_weights_K = len(labels) / labels.bincount(minlength=setup.num_classes).clamp(min=1)
    memory_format = torch.channels_last if setup.device.type == "cuda" else torch.contiguous_format
    return method.to(setup.device, memory_format=memory_format)  # type: ignore[call-overload,no-any-return]  # torch types only the 4-D form


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
    if config.optim.balance != "sampler" or (labels_N is not None and labels_N.dim() == 2):
        return shuffled_order(num_images, seed, epoch)[: num_images // batch * batch].view(-1, batch)
    if labels_N is None:
        raise UserError("optim.balance=sampler needs labels; use the recipe images-ssl, or optim.balance=none")
    classes, images, extra = balanced_shares(config, labels_N)
    return balanced_batches(labels_N.cpu(), classes, images, seed, epoch, extra=extra)


def balanced_shares(config: Config, labels_N: Tensor) -> tuple[int, int, int]:
    """The `shares` of a batch of optim.balance=sampler."""
    return shares(config.optim.batch_images, config.data.images_per_class, len(labels_N.unique()))
