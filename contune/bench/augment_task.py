"""What everyone in `contune bench augment` does in a call: so many normalised views of uint8 images, on the device."""

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from torch import Tensor

MEAN, STD = (0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)
CHANNELS = 3

Call = Callable[[], Tensor]
"""Returns views (N, C, H, W) in float32; on a GPU it need not wait for them."""


@dataclass(frozen=True, kw_only=True)
class Task:
    policy: str
    num_views: int
    image_size: int
    device: torch.device

    def images(self) -> Tensor:
        """As many as views, uint8 on the host; smooth with a little noise, so more like photographs than noise is."""
        generator = torch.Generator().manual_seed(0)
        coarse = torch.rand(self.num_views, CHANNELS, 5, 5, generator=generator) * 300 - 20
        smooth = torch.nn.functional.interpolate(coarse, size=(self.image_size,) * 2, mode="bicubic")
        return (smooth + 6 * torch.randn(smooth.shape, generator=generator)).clamp(0, 255).to(torch.uint8)


@dataclass(frozen=True, kw_only=True)
class Contestant:
    name: str
    policy: str
    source: str
    """Where the code is from, with its version."""
    start: Callable[[Task], AbstractContextManager["Started"]]


@dataclass(frozen=True, kw_only=True)
class Started:
    call: Call
    pause: Callable[[], None] = lambda: None
    """Ends what goes on in other processes between calls, until the next call."""
    ahead: int = 0
    """Calls that it takes before the others are as long as they are on average."""
    note: str = ""


def check_views(views: Tensor, task: Task) -> None:
    """Raises where a contestant has not done its task."""
    shape = (task.num_views, CHANNELS, task.image_size, task.image_size)
    if tuple(views.shape) != shape or views.dtype != torch.float32 or views.device.type != task.device.type:
        raise ValueError(f"made {tuple(views.shape)} {views.dtype} on {views.device}, not {shape} in float32")
    if not views.isfinite().all():
        raise ValueError("made numbers that are not finite")


def fastest(calls: Mapping[str, Callable[[], object]]) -> str:
    """The name of the one whose best of five is the best; they run in turns."""
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(5):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            best[name] = min(best[name], time.perf_counter() - start)
    return min(best, key=lambda name: best[name])
