"""`contune doctor`: check machine, data and settings before a run, and suggest changes."""

import math
import time
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor, nn

from contune.config import Config
from contune.console import Finding, advice, fine, note, plural, wrong
from contune.device import choose_device, free_bytes, hardware_name
from contune.errors import UserError
from contune.kernels import LossSettings
from contune.kernels.dense import loss_per_anchor
from contune.methods.base import Method
from contune.methods.tcl import TCL
from contune.models.encoders import has_small_stem
from contune.training import setup as training
from contune.training.log import versions
from contune.training.setup import Setup, build_method, open_setup

PAPER_LR_PER_VIEW = 0.2 / 256
FAR_LR = 6.0
"""As a factor. The paper's own rates (appendix B.2) differ from that ratio by up to 5.6: 0.009 at 64 embeddings."""
FEW_IMAGES = 0.5
"""Mean number of other images of its class that an anchor meets. At this value, six of ten anchors meet none."""
LARGE_R = 100.0
"""See `about_k1`: up to this r even a run of a few epochs learns."""
R_PER_STEP = 0.5
"""Of results/fig-k1-digits, 280 steps each, k1 = 500 (r = 53) scores like SupCon, and k1 = 2000 (r = 213) far less."""
MIN_TRIAL, MAX_TRIAL = 16, 256
"""Images to time: a few small ones take nearly as long as many on a GPU, and a few large ones are enough."""
CPU_TRIAL_BYTES = 2**27
"""Activations of a trial on a CPU, so that it ends in a second or two."""


def examine(config: Config) -> Iterator[Finding]:
    """Findings in the order of a run: ✓ for a check that passed. An error that would stop the run is the last one."""
    try:
        found = ", ".join(f"{name} {version}" for name, version in versions().items())
        yield note(f"machine: {hardware_name(choose_device('auto'))}; {found}")  # what a bug report starts with
        setup = open_setup(config)
        yield from about_data(setup)
        yield from about_batch(setup)
        yield from about_k1(setup)
        setup.augmenter()  # raises if a policy is wrong
        yield from about_network(setup, build_method(setup))
    except UserError as error:
        yield wrong(str(error))


def about_data(setup: Setup) -> Iterator[Finding]:
    """Splits and classes, and whether they can be evaluated and learned from."""
    dataset, config = setup.dataset, setup.config
    splits = (("train", dataset.train), ("val", dataset.val), ("test", dataset.test))
    sizes = ", ".join(f"{len(split):,} {name}" for name, split in splits if split is not None)
    yield note(f"data: {dataset.name}, {sizes}; {plural(setup.num_classes, 'class', 'es')}; {setup.spec.image_size} px")
    if dataset.skipped:
        yield advice(f"{plural(len(dataset.skipped), 'broken image')} left out, such as {dataset.skipped[0].name!r}")
    if setup.eval_set() is None:
        yield advice("there is no test split to evaluate on; set data.test_fraction=0.2 or more")
    if dataset.train.labels is not None and config.method.settings.needs_labels:
        counts_K = images_per_class(dataset.train.labels, setup.num_classes)
        smallest, largest = int(counts_K.min()), int(counts_K.max())
        if largest == 1 and config.method.name != "cross-entropy":
            fix = "add images of each class, or train without labels with the recipe images-ssl"
            yield advice(f"every class has a single image, so labels teach nothing; {fix}")
        if largest > 10 * max(1, smallest) and dataset.train.labels.dim() == 1:
            rarest = dataset.class_names[int(counts_K.argmin())]
            fix = "start with optim.balance=none, then compare it with sampler"
            yield advice(f"classes have from {smallest} ({rarest}) to {largest} images; {fix}")


def about_batch(setup: Setup) -> Iterator[Finding]:
    """What a batch contains, whether the rate suits its size, and the loss without progress: ln N of N terms."""
    config, labels_N = setup.config, setup.dataset.train.labels
    training.local_batch(config, len(setup.dataset.train))
    images, views = config.optim.batch_images, config.augment.views
    num = images * views
    size = f"{plural(images, 'image')} × {plural(views, 'view')} = {plural(num, 'embedding')}"
    yield note(f"batch: {size}, the number that the paper calls the batch size")
    training.epoch_indices(config, len(setup.dataset.train), labels_N, epoch=0)
    if config.optim.balance == "sampler" and labels_N is not None and labels_N.dim() == 1:
        classes, each, extra = training.balanced_shares(config, labels_N)
        more = f" or {each + 1}" if extra else ""
        yield note(f"balanced: {plural(classes, 'class', 'es')} in a batch, {each}{more} images of each")
    expected_lr = PAPER_LR_PER_VIEW * num
    if config.optim.name == "sgd":
        is_near = expected_lr / FAR_LR < config.optim.lr < expected_lr * FAR_LR
        finding, words = (fine, "near") if is_near else (advice, "far from")
        yield finding(f"optim.lr={config.optim.lr:g} is {words} {expected_lr:.2g}, the paper's 0.2 per 256 embeddings")
    if config.method.name == "cross-entropy":
        return
    expected, by_label = expected_positives(config, labels_N), config.method.settings.needs_labels
    if expected == 0:
        raise UserError("an anchor has no positives; set augment.views=2 or more")
    num_terms = denominator_of_equals(config, expected)
    adds_cross_entropy = getattr(config.method.settings, "cross_entropy", 0.0) > 0
    if config.method.name in ("tcl", "supcon", "simclr") and num_terms > 1 and not adds_cross_entropy:
        yield note(f"a loss that stays at about ln {round(num_terms, 1):g} = {math.log(num_terms):.2f} has not learned")
    text = f"positives: {expected:.1f} for each anchor on average"
    if not by_label or labels_N is None or images_per_class(labels_N).max() == 1:
        yield note(text)
    elif (expected + 1) / views - 1 < FEW_IMAGES:
        yield advice(f"{text}; few anchors meet another of their class: raise optim.batch_images")
    else:
        yield fine(text)


def images_per_class(labels_N: Tensor, num_classes: int = 0) -> Tensor:
    return labels_N.sum(dim=0).long() if labels_N.dim() == 2 else labels_N.bincount(minlength=num_classes)


def expected_positives(config: Config, labels_N: Tensor | None) -> float:
    """Views of the same image and, for methods that use labels, of other images of its class."""
    views, batch = config.augment.views, config.optim.batch_images
    if not config.method.settings.needs_labels or labels_N is None:
        return views - 1
    if labels_N.dim() == 2:  # random batches; of evenly spaced images, the share of pairs with a common label
        some_ND = labels_N[:: -(-len(labels_N) // 1000)]
        share = ((some_ND @ some_ND.T > 0).sum().item() - len(some_ND)) / max(1, len(some_ND) * (len(some_ND) - 1))
        return views - 1 + views * (batch - 1) * share
    if config.optim.balance == "sampler":
        classes, images, extra = training.balanced_shares(config, labels_N)
        of_own_class = (classes - extra) * images**2 + extra * (images + 1) ** 2
        return views * of_own_class / batch - 1
    counts_K, num = labels_N.bincount().double(), len(labels_N)
    share_of_pairs = (counts_K * (counts_K - 1)).sum().item() / max(1, num * (num - 1))
    return views - 1 + views * (batch - 1) * share_of_pairs


def denominator_of_equals(config: Config, positives: float) -> float:
    """The loss's denominator, in units of exp(s / τ), if every pair has the same similarity s.

    A k1 that is a number has no part in it, because its term has another unit.
    """
    settings, num = config.method.settings, config.optim.batch_images * config.augment.views - 1
    knobs = settings.knobs if isinstance(settings, TCL.Settings) else LossSettings(1.0, 0.0, 1.0)
    knobs = knobs._replace(k1=knobs.k1 if knobs.kind == "auto" else 0.0)
    weights_1C = (torch.arange(num) < max(1, round(positives))).double()[None]
    loss_1, _ = loss_per_anchor(torch.zeros_like(weights_1C), weights_1C, None, knobs)  # the logarithm, as s is 0
    return round(loss_1.exp().item(), 6)


def about_k1(setup: Setup) -> Iterator[Finding]:
    """Whether the run has enough steps to undo what a large k1 does first: draw all embeddings together.

    If all similarities are about 0, as in an untrained network, k1's term of the denominator is r times the others:

        r = k1 P / (P + k2 N)        for the P positives and N negatives of an anchor

    So k1 times the share of positives matters. With labels that share is about one over the number of classes: the
    fewer classes, the smaller the largest useful k1.
    """
    config, settings = setup.config, setup.config.method.settings
    steps = len(setup.dataset.train) // config.optim.batch_images * config.optim.epochs
    if not isinstance(settings, TCL.Settings) or isinstance(settings.k1, str) or not steps:
        return
    if isinstance(settings.k2, str):
        yield advice("method.k1 is a number and method.k2 automatic, which suits an automatic k1; set method.k2=1")
    positives = expected_positives(config, setup.dataset.train.labels)
    others = config.optim.batch_images * config.augment.views - 1
    largest = max(LARGE_R, R_PER_STEP * steps) * denominator_of_equals(config, positives) / positives
    if settings.k1 <= largest:
        yield fine(f"method.k1={settings.k1:g} is not too large for {plural(steps, 'step')}")
    else:
        unit = 10.0 ** math.floor(math.log10(largest))
        fix = f"set method.k1={math.floor(largest / unit) * unit:g} or less, or method.k1=auto method.k2=auto"
        about = f"{plural(steps, 'step')} where {100 * positives / others:.2g} % of a batch are positives of an anchor"
        yield advice(f"method.k1={settings.k1:g} is large for {about}: the loss may hardly fall; {fix}")


def about_network(setup: Setup, method: Method) -> Iterator[Finding]:
    """The stem for this image size, and memory and time of the run, estimated from a short trial."""
    config = setup.config
    parameters = sum(p.numel() for p in method.encoder.parameters()) / 1e6
    yield note(f"encoder: {setup.spec.encoder}, {parameters:.1f} M parameters, {method.num_features} features")
    if config.optim.layer_decay < 1 and setup.weights is None:
        yield advice("optim.layer_decay is for pretrained weights, and these are random; set model.weights")
    is_plain = setup.spec.encoder.startswith("resnet") and type(getattr(method.encoder, "conv1", None)) is nn.Conv2d
    if is_plain and not setup.weights:
        own, other = ("cifar", "imagenet") if has_small_stem(method.encoder) else ("imagenet", "cifar")
        changed = replace(setup.spec, stem=other).build().to(setup.device)
        ratio = _seconds_per_view(setup, changed, MIN_TRIAL) / _seconds_per_view(setup, method.encoder, MIN_TRIAL)
        yield note(f"stem: {own}; model.stem={other} would take {ratio:.1f} times as long")
    views, free = config.optim.batch_images * config.augment.views, free_bytes(setup.device)
    steps = len(setup.dataset.train) // config.optim.batch_images * config.optim.epochs
    bytes_per_view = _activation_bytes(setup, method)
    weights_gradients_momentum = 3 * sum(p.numel() * p.element_size() for p in method.parameters())
    needed = weights_gradients_momentum + views * bytes_per_view
    text = f"memory: about {needed / 2**30:.2g} GiB for a step, {free / 2**30:.1f} GiB are free"
    yield fine(text) if needed < 0.9 * free else advice(f"{text}; lower optim.batch_images")
    room = free // 2 if setup.device.type == "cuda" else CPU_TRIAL_BYTES
    num_trial = max(MIN_TRIAL, min(views, MAX_TRIAL, room // bytes_per_view))
    hours = steps * views * _seconds_per_view(setup, method.encoder, num_trial) / 3600
    duration = f"{hours:.1f} h" if hours >= 1 else f"{60 * hours:.1f} min"
    yield note(f"time: about {duration} for {plural(steps, 'step')}, estimated from {num_trial} images")


def _activation_bytes(setup: Setup, method: Method) -> int:
    """Outputs of all layers for one image: what the backward pass keeps."""
    sizes: list[int] = []
    spec, layers = setup.spec, [module for module in method.encoder.modules() if not list(module.children())]
    hooks = [layer.register_forward_hook(lambda layer, x, y: sizes.append(getattr(y, "nbytes", 0))) for layer in layers]
    with torch.no_grad(), setup.autocast():
        method.encoder.eval()(torch.zeros(1, spec.channels, spec.image_size, spec.image_size, device=setup.device))
    for hook in hooks:
        hook.remove()
    return sum(sizes)


def _seconds_per_view(setup: Setup, encoder: nn.Module, num: int) -> float:
    """The fastest of four passes: the first warms up, and others may wait for other programs."""
    spec = setup.spec
    images_BCHW = torch.randn(num, spec.channels, spec.image_size, spec.image_size, device=setup.device)
    encoder.train()
    seconds = []
    for _ in range(4):
        start = time.perf_counter()
        with setup.autocast():
            encoder(images_BCHW).square().mean().backward()
        if setup.device.type == "cuda":
            torch.cuda.synchronize(setup.device)
        seconds.append(time.perf_counter() - start)
    return min(seconds) / num
