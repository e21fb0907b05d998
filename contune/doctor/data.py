"""The images: what there is, what can be measured on it, and whether classes and pixels are balanced."""

from collections.abc import Iterator

import torch
from torch import Tensor

from contune.config import Config
from contune.console import Finding, advice, fine, plural
from contune.data import Dataset
from contune.data.augment import eval_transform
from contune.doctor.positives import has_positives_by_label
from contune.train.setup import Setup
from contune.train.skipped import broken_words


def about_data(setup: Setup) -> Iterator[Finding]:
    dataset, config = setup.dataset, setup.config
    sizes = ", ".join(
        f"{len(split):,} {name}"
        for name, split in (("train", dataset.train), ("val", dataset.val), ("test", dataset.test))
        if split is not None
    )
    yield fine(f"data: {dataset.name}, {sizes}; {plural(setup.num_classes, 'class', 'es')}; {setup.spec.image_size} px")
    if dataset.skipped:
        yield advice(f"{broken_words(dataset.skipped)} left out, such as {dataset.skipped[0].name!r}")
    if setup.eval_set() is None:
        yield advice(f"there is no {config.eval.split} split, so nothing will be measured; {setup.way_to_measure()}")
    if dataset.maybe_labels and not config.method.settings.needs_labels:
        yield advice(f"no label column of a usual name, so nothing will be measured; {setup.where_labels_may_be()}")
    if dataset.train.labels is not None and config.method.settings.needs_labels:
        yield from _balance(config, dataset, dataset.train.labels)
    yield from _normalisation(setup)


def _balance(config: Config, dataset: Dataset, labels_N: Tensor) -> Iterator[Finding]:
    counts_K = labels_N.bincount(minlength=len(dataset.class_names))
    smallest, largest = int(counts_K.min()), int(counts_K.max())
    if largest == 1 and has_positives_by_label(config):
        yield advice(
            "every class has a single image, so the only positives of an anchor are its own views, and labels teach "
            "nothing; add images of each class, or train without labels by the recipe images-ssl"
        )
    if largest > 10 * max(1, smallest) and config.data.sampler == "shuffle":
        name = dataset.class_names[int(counts_K.argmin())]
        yield advice(
            f"classes have from {smallest} ({name}) to {largest} images; "
            "data.sampler=balanced gives each class its share of every batch"
        )


def _normalisation(setup: Setup) -> Iterator[Finding]:
    train, spec = setup.dataset.train, setup.spec
    indices = torch.linspace(0, len(train) - 1, min(256, len(train))).long()
    images_NCHW = train.subset(indices).resident(spec.image_size, spec.channels)
    x_NCHW = eval_transform(images_NCHW, spec.image_size, spec.mean, spec.std)
    mean, std = x_NCHW.mean().item(), x_NCHW.std().item()
    if abs(mean) > 0.5 or not 0.5 < std < 2.0:
        yield advice(
            f"normalised images have mean {mean:.2f} and deviation {std:.2f} where 0 and 1 are meant; see whether they "
            f"are those of {setup.dataset.name}: the recipe images takes any and measures both"
        )
