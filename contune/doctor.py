"""`contune doctor`: what to know about a run before it starts, from the machine to the positives of an anchor."""

import math
import os
import shutil
import time
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from contune.config import Config
from contune.counts import plural
from contune.data import Dataset
from contune.data.augment import eval_transform
from contune.errors import UserError
from contune.findings import Finding as Finding
from contune.findings import advice, fine, wrong
from contune.methods import Method
from contune.methods.tcl import TCL
from contune.models.encoders import SMALL_IMAGE
from contune.train.device import choose_device, hardware_name
from contune.train.order import balanced_shares, epoch_indices
from contune.train.result import versions
from contune.train.setup import Setup, build_method, local_batch, open_setup, view_policies
from contune.train.skipped import broken_words, way_around

PAPER_LR_PER_VIEW = 0.2 / 256
TRIAL_IMAGES = 16
LARGE_K1 = 1000.0
K1_PER_STEP = 5.0
"""`contune train digits method.k1=5000` has 88.8 % in its 280 steps, 96.0 in the 560 of optim.epochs=40 and 99.3 in the
1,120 of 80; with k1=2000 it is 96.7 % in 280 and 99.7 in 560."""


def examine(config: Config) -> Iterator[Finding]:
    """Findings in the order of a run. What stops it ends the examination."""
    try:
        with way_around():
            yield from _examined(config)
    except UserError as error:
        yield wrong(str(error))


def _examined(config: Config) -> Iterator[Finding]:
    yield from _machine(config.run.device)
    setup = open_setup(config)
    yield from _data(setup)
    yield from _batch(setup)
    yield from _positives(config, setup.dataset.train.labels)
    yield from _pull(setup)
    setup.augmenter(view_policies(config.augment))
    method = build_method(setup)
    yield from _network(setup, method)
    yield from _cost(setup, method)


def _machine(device_name: str) -> Iterator[Finding]:
    """Before anything can go wrong: it is what a report of a bug begins with."""
    try:
        device = choose_device(device_name)
    except UserError:  # said when the run would want it
        device = choose_device("auto")
    found = ", ".join(f"{name} {version}" for name, version in versions().items())
    yield fine(f"machine: {hardware_name(device)}; {found}")
    free_gib = shutil.disk_usage(".").free / 2**30
    if free_gib < 2:
        yield advice(f"only {free_gib:.1f} GiB of disk are free here; checkpoints may not fit")


def _data(setup: Setup) -> Iterator[Finding]:
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
    if dataset.train.labels is not None:
        yield from _balance(config, dataset, dataset.train.labels)
    yield from _normalisation(setup)


def _balance(config: Config, dataset: Dataset, labels_N: Tensor) -> Iterator[Finding]:
    counts_K = labels_N.bincount(minlength=len(dataset.class_names))
    smallest, largest = int(counts_K.min()), int(counts_K.max())
    if largest == 1 and _has_positives_by_label(config):
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
        yield advice(f"normalised images have mean {mean:.2f} and deviation {std:.2f} where 0 and 1 are meant")


def _batch(setup: Setup) -> Iterator[Finding]:
    config = setup.config
    local_batch(config, len(setup.dataset.train))
    images, views = config.optim.batch_images, config.augment.views
    num = images * views
    yield fine(
        f"batch: {plural(images, 'image')} × {plural(views, 'view')} = {plural(num, 'embedding')}, "
        "which is what the paper counts"
    )
    if config.method.name in ("tcl", "supcon", "simclr") and num > 2:
        yield fine(
            f"an untrained loss is about ln {num - 1} = {math.log(num - 1):.2f}; one that stays there has not learnt"
        )
    labels_N = setup.dataset.train.labels
    epoch_indices(config, len(setup.dataset.train), labels_N, epoch=0)
    if config.data.sampler == "balanced" and labels_N is not None:
        classes, each, extra = balanced_shares(config, labels_N)
        range_of_each = f"{each} or {each + 1}" if extra else f"{each}"
        yield fine(f"balanced: {plural(classes, 'class', 'es')} in a batch, {range_of_each} images of each")
    expected_lr = PAPER_LR_PER_VIEW * num
    if config.optim.name == "sgd" and not expected_lr / 5 < config.optim.lr < expected_lr * 5:
        yield advice(
            f"optim.lr={config.optim.lr:g} is far from the paper's ratio of 0.2 at 256 embeddings, "
            f"which is {expected_lr:.2g} here"
        )


def _positives(config: Config, labels_N: Tensor | None) -> Iterator[Finding]:
    if config.method.name == "cross-entropy":
        return
    expected = expected_positives(config, labels_N)
    by_label = _has_positives_by_label(config)
    if expected == 0:
        where = "with one image of each class in a batch" if by_label else "without labels"
        raise UserError(f"an anchor has no positives: {where} it takes augment.views=2 or more")
    yield fine(f"positives: {expected:.1f} for each anchor on average")
    are_there = labels_N is not None and int(labels_N.bincount().max()) > 1
    if by_label and are_there and expected - (config.augment.views - 1) < 1:
        yield advice(
            "few anchors meet another image of their class; raise optim.batch_images, or set data.sampler=balanced"
        )


def expected_positives(config: Config, labels_N: Tensor | None) -> float:
    """Views of the same image, and of other images of its class where the method goes by labels."""
    views, batch = config.augment.views, config.optim.batch_images
    if not config.method.settings.needs_labels or labels_N is None:
        return views - 1
    if config.data.sampler == "balanced":
        classes, images, extra = balanced_shares(config, labels_N)
        of_own_class = (classes - extra) * images**2 + extra * (images + 1) ** 2
        return views * of_own_class / batch - 1
    counts_K, num = labels_N.bincount().double(), len(labels_N)
    share_of_pairs = (counts_K * (counts_K - 1)).sum().item() / max(1, num * (num - 1))
    return views - 1 + views * (batch - 1) * share_of_pairs


def _pull(setup: Setup) -> Iterator[Finding]:
    """A large k1 draws everything together first, and it takes steps to undo that."""
    settings, steps = setup.config.method.settings, _num_steps(setup)
    if isinstance(settings, TCL.Settings) and settings.k1 >= LARGE_K1 and 0 < steps < settings.k1 / K1_PER_STEP:
        yield advice(
            f"method.k1={settings.k1:g} is much for {plural(steps, 'step')}, which may end near the untrained loss; "
            "method.k1=500 suits short runs, and contune tune --how advise finds a value"
        )


def _num_steps(setup: Setup) -> int:
    return len(setup.dataset.train) // setup.config.optim.batch_images * setup.config.optim.epochs


def _has_positives_by_label(config: Config) -> bool:
    return config.method.settings.needs_labels and config.method.name != "cross-entropy"


def _network(setup: Setup, method: Method) -> Iterator[Finding]:
    parameters = sum(p.numel() for p in method.encoder.parameters()) / 1e6
    yield fine(f"encoder: {setup.spec.encoder}, {parameters:.1f} M parameters, {method.num_features} features")
    size, stem = setup.spec.image_size, setup.spec.stem
    if stem == "imagenet" and size <= SMALL_IMAGE:
        yield advice(f"model.stem=imagenet shrinks {size}-pixel images fourfold at once; model.stem=cifar keeps them")
    if stem == "cifar" and size > SMALL_IMAGE:
        yield advice(f"model.stem=cifar keeps {size}-pixel maps at full size, which is slow; model.stem=auto chooses")


def _cost(setup: Setup, method: Method) -> Iterator[Finding]:
    """A trial on a few images, scaled up to the batch and the epochs."""
    config = setup.config
    views = config.optim.batch_images * config.augment.views
    memory = _weights_bytes(method) + views * _activation_bytes(setup, method) + 40 * views**2
    available = _memory_bytes(setup.device)
    text = f"memory: about {memory / 2**30:.1f} GiB for a step, {available / 2**30:.0f} GiB there"
    yield fine(text) if memory < 0.9 * available else advice(f"{text}; lower optim.batch_images")
    steps = _num_steps(setup)
    hours = steps * views * _seconds_per_view(setup, method) / 3600
    duration = f"{hours:.1f} h" if hours >= 1 else f"{60 * hours:.1f} min"
    yield fine(f"time: about {duration} for {plural(steps, 'step')}, going by a trial of {TRIAL_IMAGES} images")


def _weights_bytes(method: nn.Module) -> int:
    """Weights, gradients and momentum."""
    return 3 * sum(p.numel() * p.element_size() for p in method.parameters())


def _activation_bytes(setup: Setup, method: Method) -> int:
    """Outputs of all layers for one image: what the backward pass keeps."""
    total = 0

    def count(module: nn.Module, inputs: object, output: object) -> None:
        nonlocal total
        if isinstance(output, Tensor):
            total += output.numel() * output.element_size()

    leaves = [m for m in method.encoder.modules() if not list(m.children())]
    hooks = [leaf.register_forward_hook(count) for leaf in leaves]
    with torch.no_grad(), setup.autocast():
        method.encoder.eval()(_trial_images(setup, 1))
    for hook in hooks:
        hook.remove()
    return total


def _seconds_per_view(setup: Setup, method: Method) -> float:
    images_BCHW = _trial_images(setup, TRIAL_IMAGES)
    method.encoder.train()
    for _ in range(2):  # the first pass warms up
        _wait(setup.device)
        start = time.perf_counter()
        with setup.autocast():
            method.encoder(images_BCHW).square().mean().backward()
        _wait(setup.device)
    return (time.perf_counter() - start) / TRIAL_IMAGES


def _trial_images(setup: Setup, num: int) -> Tensor:
    spec = setup.spec
    return torch.randn(num, spec.channels, spec.image_size, spec.image_size, device=setup.device)


def _memory_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
