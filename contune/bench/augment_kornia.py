"""kornia's modules, which are random by image in a batch on any device.

The order of its colour jitter is the batch's, not the image's. Its AutoAugment takes one sub-policy for the whole
batch, so it does something else and takes no part. It crops in two ways: the fastest here takes part.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from torch import Tensor, nn

from contune.bench.augment_task import MEAN, STD, Contestant, Started, Task, fastest
from contune.device import torchvision  # noqa: F401  (before it imports torchvision by itself)


def kornia_contestants(policies: Sequence[str]) -> tuple[list[Contestant], list[str]]:
    """And its name if it would take part and is not installed."""
    wanted = [policy for policy in policies if policy in _MODULES]
    try:
        source = f"kornia {version('kornia')}"
        import_module("kornia.augmentation")
    except (ImportError, PackageNotFoundError):
        return [], ["kornia"] if wanted else []
    return [Contestant(name="kornia", policy=policy, source=source, start=_start) for policy in wanted], []


def _simaugment(lib: Any, size: int, cropping_mode: str) -> list[nn.Module]:
    return [
        lib.RandomResizedCrop((size, size), resample="BICUBIC", same_on_batch=False, cropping_mode=cropping_mode),
        lib.RandomHorizontalFlip(same_on_batch=False),
        lib.ColorJitter(0.8, 0.8, 0.8, 0.2, p=0.8, same_on_batch=False),
        lib.RandomGrayscale(p=0.2, same_on_batch=False),
        lib.RandomGaussianBlur((13, 13), (0.1, 2.0), p=0.5, same_on_batch=False),
    ]


def _crop_flip(lib: Any, size: int, cropping_mode: str) -> list[nn.Module]:
    return [
        lib.RandomCrop((size, size), padding=4, same_on_batch=False, cropping_mode=cropping_mode),
        lib.RandomHorizontalFlip(same_on_batch=False),
    ]


_MODULES: dict[str, Callable[[Any, int, str], list[nn.Module]]] = {
    "simaugment": _simaugment,
    "crop-flip": _crop_flip,
}


@contextmanager
def _start(task: Task) -> Iterator[Started]:
    lib = import_module("kornia.augmentation")
    images_BCHW = task.images().to(task.device)

    def form(cropping_mode: str) -> Callable[[], Tensor]:
        modules = _MODULES[task.policy](lib, task.image_size, cropping_mode)
        pipeline = nn.Sequential(*modules, lib.Normalize(MEAN, STD)).to(task.device)
        return lambda: pipeline(images_BCHW.float().div_(255))

    forms = {cropping_mode: form(cropping_mode) for cropping_mode in ("slice", "resample")}
    cropping_mode = fastest(forms)
    yield Started(call=forms[cropping_mode], note=f"cropping_mode={cropping_mode}")
