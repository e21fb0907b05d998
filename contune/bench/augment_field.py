"""Who takes part in `contune bench augment`: contune in each of its forms, and the libraries that are installed."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor

from contune import __version__
from contune.bench.augment_kornia import kornia_contestants
from contune.bench.augment_task import CHANNELS, MEAN, STD, Contestant, Started, Task
from contune.bench.augment_torchvision import torchvision_contestants
from contune.data.augment import Augmenter, build_policy
from contune.train.engine import WARMUP_CALLS, CapturedStep


def everyone(policies: list[str], device: torch.device) -> tuple[list[Contestant], list[str]]:
    """The contestants, and the libraries that are not installed."""
    own = [contestant for policy in policies for contestant in _own(policy, device)]
    kornias, absent = kornia_contestants(policies)
    return [*own, *torchvision_contestants(policies), *kornias], absent


def baseline(device: torch.device) -> str:
    """Whom the others are compared with: contune as its training uses it."""
    return "contune fused (graph)" if device.type == "cuda" else "contune torch"


def _own(policy: str, device: torch.device) -> list[Contestant]:
    forms = [(backend, recorded) for backend in ("torch", "fused") for recorded in (False, True)]
    if device.type != "cuda":
        forms = [("torch", False)]
    return [
        Contestant(
            name=f"contune {backend}" + (" (graph)" if recorded else ""),
            policy=policy,
            source=f"contune {__version__}",
            start=partial(_start, backend=backend, recorded=recorded),
        )
        for backend, recorded in forms
    ]


@contextmanager
def _start(task: Task, *, backend: str, recorded: bool) -> Iterator[Started]:
    """Drawing is part of the work, and of the recording."""
    policy = build_policy(task.policy, image_size=task.image_size, channels=CHANNELS)
    augmenter = Augmenter([policy], MEAN, STD, backend)
    generator = torch.Generator(task.device).manual_seed(0)
    images_BCHW = task.images().to(task.device)

    def step(images_BCHW: Tensor, labels_B: Tensor | None) -> dict[str, Tensor]:
        return {"views": augmenter.stacked(images_BCHW, augmenter.draw(len(images_BCHW), generator))}

    run = CapturedStep(step, generator) if recorded else step
    for _ in range(WARMUP_CALLS if recorded else 0):
        run(images_BCHW, None)
    yield Started(call=lambda: run(images_BCHW, None)["views"], note="recorded as a CUDA graph" if recorded else "")
