"""Views per second of the augmentation, compared with torchvision and kornia.

    python benchmarks/augment.py                                          # AutoAugment, SimAugment, crop and flip
    python benchmarks/augment.py --policies simaugment --views 256 --image-size 64
    python benchmarks/augment.py --views 32 --seconds 0.2                 # a quick try on a CPU

Hardware: one H200 with 16 cores (1 minute) or two CPU cores (1 minute). Expected on an H200: 9.1 million AutoAugment
and 4.5 million SimAugment views per second as a CUDA graph (results/augment-h200.json).

A call makes normalized float32 views on the device from uint8 images. For contune and kornia the images are on the
device already, as in training; for torchvision the copy counts. torchvision is random by image, so it is called image
by image, in this process and in a DataLoader with a worker per core. It has two generations of transforms and two kinds
of images, kornia two ways to crop: the fastest is timed. kornia's AutoAugment uses one sub-policy for the whole batch,
so it does not take part. Before timing, every contestant's views are checked: shape, type, device, and a mean and
spread per channel close to contune's.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any

import torch
from common import (
    Contestant,
    Row,
    attempt,
    digits,
    dots,
    figure,
    parser,
    race,
    save,
    show,
    start,
    summary,
    words,
    write,
)
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Sampler

from contune.data.augment import Augmenter, build_policy
from contune.device import available_cores, torchvision
from contune.report.style import BLUE, GREEN, SKY, VERMILLION
from contune.training.engine import CapturedStep

MEAN, STD = (0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)
PREFETCH = 2
COLORS = {"contune": BLUE, "torchvision": VERMILLION, "torchvision (workers)": GREEN, "kornia": SKY}


def make_images(num: int, size: int) -> Tensor:
    """Smooth with a little noise, so more like photographs than noise is."""
    generator = torch.Generator().manual_seed(0)
    coarse = torch.rand(num, 3, 5, 5, generator=generator) * 300 - 20
    smooth = torch.nn.functional.interpolate(coarse, size=(size, size), mode="bicubic")
    return (smooth + 6 * torch.randn(smooth.shape, generator=generator)).clamp(0, 255).to(torch.uint8)


def fastest(calls: Mapping[str, Callable[[], object]]) -> str:
    """The name of the one with the best of three; they run in turn."""
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(3):
        for name, call in calls.items():
            begun = time.perf_counter()
            call()
            best[name] = min(best[name], time.perf_counter() - begun)
    return min(best, key=lambda name: best[name])


def views_of(run: Callable[..., dict[str, Tensor]], images_BCHW: Tensor) -> Tensor:
    return run(images_BCHW, None)["views"]


def contune(policy: str, images: Tensor, device: torch.device) -> Iterator[Contestant]:
    """Drawing is part of the work, and of the CUDA graph."""
    kind = build_policy(policy, image_size=images.shape[-1], channels=3)
    forms = [("torch", False), ("torch", True), ("fused", False), ("fused", True)]
    images_BCHW = images.to(device)
    for backend, graph in forms if device.type == "cuda" else forms[:1]:
        augmenter = Augmenter([kind], MEAN, STD, backend)  # type: ignore[arg-type]
        generator = torch.Generator(device).manual_seed(0)

        def step(
            images_BCHW: Tensor,
            labels_B: Tensor | None,
            augmenter: Augmenter = augmenter,
            generator: torch.Generator = generator,
        ) -> dict[str, Tensor]:
            return {"views": augmenter.apply(images_BCHW, augmenter.draw(len(images_BCHW), generator))[0]}

        run = CapturedStep(step, generator) if graph else step
        name = f"contune {backend}" + (" (graph)" if graph else "")
        yield Contestant(name=name, call=partial(views_of, run, images_BCHW))


# ---------------------------------------------------------------------------- torchvision


def torchvision_steps(policy: str, lib: Any, size: int) -> list[Any]:
    if policy == "simaugment":
        bicubic = torchvision.transforms.InterpolationMode.BICUBIC
        return [
            lib.RandomResizedCrop(size, interpolation=bicubic, antialias=True),
            lib.RandomApply([lib.ColorJitter(0.8, 0.8, 0.8, 0.2)], p=0.8),
            lib.RandomGrayscale(0.2),
            lib.RandomApply([lib.GaussianBlur(13, (0.1, 2.0))], p=0.5),
            lib.RandomHorizontalFlip(),
        ]
    crop_flip = [lib.RandomCrop(size, padding=4), lib.RandomHorizontalFlip()]
    if policy == "crop-flip":
        return crop_flip
    return [*crop_flip, lib.AutoAugment(torchvision.transforms.AutoAugmentPolicy.CIFAR10)]


class Views(Dataset[Tensor]):
    """A new view of an image each time."""

    def __init__(self, images: Sequence[Any], transform: Callable[[Any], Tensor]) -> None:
        self.images, self.transform = images, transform

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Tensor:
        return self.transform(self.images[index])

    def some(self, num: int) -> list[Tensor]:
        return [self[index] for index in range(min(num, len(self)))]


class Repeated(Sampler[list[int]]):
    """The same batch again and again, until it is closed."""

    def __init__(self, num: int) -> None:
        self.num, self.closed = num, False

    def __iter__(self) -> Iterator[list[int]]:
        while not self.closed:
            yield list(range(self.num))


class Workers:
    """Batches of a DataLoader whose workers are idle between two laps."""

    def __init__(self, views: Views, device: torch.device) -> None:
        self.device, self.sampler = device, Repeated(len(views))
        self.batches: Iterator[Tensor] | None = None
        self.loader: DataLoader[Tensor] = DataLoader(
            views, batch_sampler=self.sampler, num_workers=available_cores(), prefetch_factor=PREFETCH,
            pin_memory=device.type == "cuda", persistent_workers=True,
        )  # fmt: skip

    def next(self) -> Tensor:
        if self.batches is None:
            self.sampler.closed = False
            self.batches = iter(self.loader)
        return next(self.batches).to(self.device, non_blocking=True)

    def pause(self) -> None:
        self.sampler.closed = True
        if self.batches is not None:
            deque(self.batches, maxlen=0)
        self.batches = None


def torchvision_views(policy: str, images: Tensor) -> tuple[Views, str]:
    """In the fastest form, and its name."""
    v1, v2 = torchvision.transforms, import_module("torchvision.transforms.v2")
    tensors, size = list(images), images.shape[-1]
    pillows = [v1.functional.to_pil_image(image) for image in tensors]
    steps1, steps2 = (torchvision_steps(policy, lib, size) for lib in (v1, v2))
    to_float, normal1, normal2 = v2.ToDtype(torch.float32, scale=True), v1.Normalize(MEAN, STD), v2.Normalize(MEAN, STD)
    forms = {
        "Pillow images": Views(pillows, v1.Compose([*steps1, v1.ToTensor(), normal1])),
        "uint8 tensors": Views(tensors, v1.Compose([*steps1, v1.ConvertImageDtype(torch.float32), normal1])),
        "v2, Pillow images": Views(pillows, v2.Compose([*steps2, v2.PILToTensor(), to_float, normal2])),
        "v2, uint8 tensors": Views(tensors, v2.Compose([*steps2, to_float, normal2])),
    }
    form = fastest({name: partial(views.some, 32) for name, views in forms.items()})
    return forms[form], form


def torchvision_contestants(policy: str, images: Tensor, device: torch.device) -> list[Contestant]:
    views, form = torchvision_views(policy, images)
    workers = Workers(views, device)
    return [
        Contestant(
            name="torchvision",
            call=lambda: torch.stack(views.some(len(views))).to(device),
            note=form,
        ),
        Contestant(
            name="torchvision (workers)",
            call=workers.next,
            pause=workers.pause,
            ahead=available_cores() * PREFETCH,
            note=f"{form}; {available_cores()} workers",
        ),
    ]


# ---------------------------------------------------------------------------- kornia


def kornia_contestants(policy: str, images: Tensor, device: torch.device) -> list[Contestant]:
    """The order of its color jitter is the batch's, not the image's."""
    lib: Any = import_module("kornia.augmentation")
    images_BCHW, size = images.to(device), (images.shape[-1],) * 2

    def form(cropping_mode: str) -> Callable[[], Tensor]:
        crop = {"same_on_batch": False, "cropping_mode": cropping_mode}
        if policy == "crop-flip":
            modules = [lib.RandomCrop(size, padding=4, **crop), lib.RandomHorizontalFlip(same_on_batch=False)]
        else:
            modules = [
                lib.RandomResizedCrop(size, resample="BICUBIC", **crop),
                lib.RandomHorizontalFlip(same_on_batch=False),
                lib.ColorJitter(0.8, 0.8, 0.8, 0.2, p=0.8, same_on_batch=False),
                lib.RandomGrayscale(p=0.2, same_on_batch=False),
                lib.RandomGaussianBlur((13, 13), (0.1, 2.0), p=0.5, same_on_batch=False),
            ]
        pipeline = nn.Sequential(*modules, lib.Normalize(MEAN, STD)).to(device)
        return lambda: pipeline(images_BCHW.float().div_(255))

    forms = {cropping_mode: form(cropping_mode) for cropping_mode in ("slice", "resample")}
    best = fastest(forms)
    return [Contestant(name="kornia", call=forms[best], note=f"cropping_mode={best}")]


# ---------------------------------------------------------------------------- the benchmark


def check(one: Contestant, images: Tensor, device: torch.device, expected: list[Tensor]) -> None:
    """Raises where a contestant's views are not views of these images; the first one sets what is expected."""
    views = one.call()
    assert isinstance(views, Tensor)
    if views.shape != images.shape or views.dtype != torch.float32 or views.device.type != device.type:
        raise ValueError(f"made {tuple(views.shape)} {views.dtype} on {views.device}")
    statistics = [views.mean((0, 2, 3)).cpu() * 0.26, views.std((2, 3)).mean(0).cpu() * 0.26]
    if not expected:
        expected += statistics
    # The standard error of a mean over the views, and 5 % of the range on top.
    bound = 0.05 + 4 * 0.26 / len(images) ** 0.5
    off = max((a - b).abs().max().item() for a, b in zip(statistics, expected, strict=True))
    if not off < bound:
        raise ValueError(f"mean or spread differ from contune's by {off:.3f}")


def main() -> None:
    options = parser(__doc__, "augment")
    options.add_argument("--policies", type=words, default=["autoaugment", "simaugment", "crop-flip"])
    options.add_argument("--views", type=int, default=512, help="in a call, of as many images [default: 512]")
    options.add_argument("--image-size", type=int, default=32, help="of images and views [default: 32]")
    arguments = options.parse_args()
    device, out = start(arguments, "augment")
    images = make_images(arguments.views, arguments.image_size)
    rows: list[Row] = []
    settings = {"num_views": arguments.views, "image_size": arguments.image_size, "seconds": arguments.seconds}
    drawing, panels = figure(1, len(arguments.policies), f"Views per second, {device.type}", 2.6)
    for policy, axes in zip(arguments.policies, panels[0], strict=True):
        field = [*contune(policy, images, device), *torchvision_contestants(policy, images, device)]
        if policy != "autoaugment":
            try:
                field += kornia_contestants(policy, images, device)
            except ImportError:
                print("not installed, so not compared: kornia")
        expected: list[Tensor] = []
        for one in field:
            attempt(one, device, partial(check, one, images, device, expected))
            one.pause()
        race(field, device, arguments.seconds)
        baseline = next(one for one in reversed(field) if one.name.startswith("contune"))  # as training uses it
        own: list[Row] = []
        for one in field:
            row = {"policy": policy, "name": one.name, "views_per_second": None, **summary(one, baseline)}
            if row["ms"]:
                row["views_per_second"] = round(1000 * arguments.views / row["ms"], 1)
            own.append(row | {"note": one.note})
        rows += own
        cells = [
            (row["name"], digits(row["views_per_second"]), digits(row["ratio"]), row["note"] or row["status"])
            for row in own
        ]
        show(policy, ("contestant", "views/s", "× contune's time", "note"), cells)
        write(out, device, {"bench": "augment", **settings, "baseline": baseline.name, "rows": rows})
        rates = {row["name"]: row["views_per_second"] for row in own if row["views_per_second"]}
        colors = {name: COLORS.get(name, BLUE) for name in rates}
        dots(axes, policy, rates, colors, "views per second")
    save(drawing, out.with_suffix(".png"))


if __name__ == "__main__":
    main()
