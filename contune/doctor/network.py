"""The encoder, and what memory and time a run with it takes: a trial on a few images, scaled up."""

import time
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from contune.console import Finding, advice, fine, plural
from contune.device import free_bytes
from contune.doctor.batch import num_steps
from contune.methods import Method
from contune.models.encoders import SMALL_IMAGE
from contune.train.setup import Setup

FEWEST_IN_TRIAL, MOST_IN_TRIAL = 16, 256
"""Images. A few small ones take nearly as long as many, above all on a GPU, and a few large ones are enough."""
CPU_TRIAL_BYTES = 2**27
"""Of activations, so that it is over in a second or two."""


def about_network(setup: Setup, method: Method) -> Iterator[Finding]:
    parameters = sum(p.numel() for p in method.encoder.parameters()) / 1e6
    yield fine(f"encoder: {setup.spec.encoder}, {parameters:.1f} M parameters, {method.num_features} features")
    yield from _stem(setup)
    yield from _cost(setup, method)


def _stem(setup: Setup) -> Iterator[Finding]:
    size, stem = setup.spec.image_size, setup.spec.stem
    if stem == "imagenet" and size <= SMALL_IMAGE and setup.spec.encoder.startswith("resnet"):  # others have no choice
        yield advice(f"model.stem=imagenet shrinks {size}-pixel images fourfold at once; model.stem=auto keeps them")
    if stem == "cifar" and size > SMALL_IMAGE:
        yield advice(f"model.stem=cifar keeps {size}-pixel maps at full size, which is slow; model.stem=auto chooses")


def _cost(setup: Setup, method: Method) -> Iterator[Finding]:
    config = setup.config
    views, available = config.optim.batch_images * config.augment.views, free_bytes(setup.device)
    of_a_view = _activation_bytes(setup, method)
    memory = _weights_bytes(method) + views * of_a_view
    text = f"memory: about {memory / 2**30:.1f} GiB for a step, {available / 2**30:.1f} GiB are free"
    yield fine(text) if memory < 0.9 * available else advice(f"{text}; lower optim.batch_images")
    room = available // 2 if setup.device.type == "cuda" else CPU_TRIAL_BYTES
    trial = max(FEWEST_IN_TRIAL, min(views, MOST_IN_TRIAL, room // of_a_view))
    steps = num_steps(setup)
    hours = steps * views * _seconds_per_view(setup, method, trial) / 3600
    duration = f"{hours:.1f} h" if hours >= 1 else f"{60 * hours:.1f} min"
    yield fine(f"time: about {duration} for {plural(steps, 'step')}, going by a trial of {trial} images")


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


def _seconds_per_view(setup: Setup, method: Method, num: int) -> float:
    """Of the fastest pass: the first warms up, and others may wait for what else the machine does."""
    images_BCHW = _trial_images(setup, num)
    method.encoder.train()
    seconds = []
    for _ in range(4):
        _wait(setup.device)
        start = time.perf_counter()
        with setup.autocast():
            method.encoder(images_BCHW).square().mean().backward()
        _wait(setup.device)
        seconds.append(time.perf_counter() - start)
    return min(seconds) / num


def _trial_images(setup: Setup, num: int) -> Tensor:
    spec = setup.spec
    return torch.randn(num, spec.channels, spec.image_size, spec.image_size, device=setup.device)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
