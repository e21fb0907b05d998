"""Training speed: views per second under each engine, compared with the encoder alone and with a usual training loop.

    python benchmarks/train.py                                            # ResNet-18, 256 views per step, all engines
    python benchmarks/train.py --encoders resnet18,resnet50 --views 256,1024
    python benchmarks/train.py --encoders resnet-mini --views 16 --seconds 0.5      # a quick try on a CPU

Hardware: one H200 (2 minutes per size, most of it compiling) or a CPU. Expected on an H200, ResNet-18, 256 views: 68.8k
views per second compiled, 66.7k fused, 54.3k as a graph only (results/train-h200-engines.json).

Random images of CIFAR's size go through the real Trainer under each `run.engine`; the last engine once more with all
logging. The bound, "encoder alone", is forward, backward and SGD of the encoder on ready views, on a GPU compiled and
captured. "torchvision workers" is an eager step whose views come from torchvision in worker processes. Before timing,
the first loss of every engine is compared with the first engine's: the same seed must give the same loss within 1 %.
"""

import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle, product
from pathlib import Path
from statistics import median

import torch
from augment import MEAN, STD, Workers, make_images, torchvision_views
from common import (
    Contestant,
    Row,
    digits,
    dots,
    figure,
    numbers,
    parser,
    race,
    release_memory,
    save,
    show,
    start,
    words,
    write,
)
from torch import Tensor, nn

from contune.config import Config
from contune.data.images import Batch, ImageSet, ResidentLoader, Splits, Traits
from contune.device import Autocast, available_cores
from contune.losses import tcl_loss
from contune.models import EncoderSpec
from contune.models.fused_norm import fuse_norms
from contune.recipes import find_recipe
from contune.report.style import BLUE, MUTED, VERMILLION
from contune.run import RunFolder
from contune.training.engine import CapturedStep, Engine, can_capture
from contune.training.log import MetricsLog
from contune.training.optim import build_optimizer
from contune.training.setup import Own, Setup, build_method, open_setup
from contune.training.trainer import Trainer

NUM_IMAGES, NUM_CLASSES, IMAGE_SIZE = 8192, 100, 32
BOUND = "encoder alone"


def synthetic_trainer(
    config: Config, *, image_size: int = IMAGE_SIZE, num_images: int = 0
) -> tuple[Trainer, list[Batch]]:
    """The Trainer on random images, and batches that are on the device already; speed does not depend on content."""
    num = num_images or max(NUM_IMAGES, 4 * config.optim.batch_images)
    generator = torch.Generator().manual_seed(0)
    shape = (num, 3, image_size, image_size)
    images_NCHW = torch.randint(256, shape, dtype=torch.uint8, generator=generator)
    labels_N = torch.randint(NUM_CLASSES, (num,), generator=generator)
    splits = Splits(
        train=ImageSet(images=images_NCHW, labels=labels_N, names=[""] * num),
        class_names=tuple(map(str, range(NUM_CLASSES))),
        traits=Traits(image_size=image_size, channels=3, mean=MEAN, std=STD),
    )
    torch.manual_seed(0)
    setup = open_setup(config, own=Own(data=splits))
    loader = ResidentLoader(images_NCHW.to(setup.device), labels_N)
    trainer = Trainer(setup, build_method(setup), loader, RunFolder("unused"))
    trainer.method.train()
    num_used = min(4 * config.optim.batch_images, num)
    return trainer, list(loader.batches(torch.arange(num_used).split(config.optim.batch_images)))


def one_step(trainer: Trainer, batches: Iterator[Batch]) -> object:
    return trainer.take_step(*next(batches))


def encoder_step(
    spec: EncoderSpec, views: Tensor, *, autocast: Autocast, engine: Engine, trained: bool
) -> Callable[[], object]:
    """A new encoder's forward pass in training mode, with backward and SGD where it is `trained`."""
    layout = torch.channels_last if views.device.type == "cuda" else torch.contiguous_format
    encoder: nn.Module = spec.build().to(views.device, memory_format=layout)  # type: ignore[call-overload]
    encoder.train().requires_grad_(trained)
    if engine.fused:
        fuse_norms(encoder)
    views = views.contiguous(memory_format=layout)
    optimizer = build_optimizer(encoder, "sgd", lr=1e-3, momentum=0.9, weight_decay=1e-4) if trained else None

    def mean_feature(x: Tensor) -> Tensor:
        with torch.set_grad_enabled(trained), autocast():
            features: Tensor = encoder(x)
        return features.float().mean()

    forward = torch.compile(mean_feature, fullgraph=True, dynamic=False) if engine.compiled else mean_feature

    def step(x: Tensor, labels_B: Tensor | None) -> dict[str, Tensor]:
        loss = forward(x)
        if optimizer is not None:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return {"loss": loss.detach()}

    run = CapturedStep(step, torch.Generator(views.device)) if engine.captured else step
    return lambda: run(views, None)


def captured(
    step: Callable[..., dict[str, Tensor]], generator: torch.Generator, device: torch.device
) -> Callable[..., object]:
    return CapturedStep(step, generator) if can_capture(device) else step


def parts(setup: Setup, num_views: int) -> Iterator[Contestant]:
    """Augmentation and loss alone."""
    device = setup.device
    augmenter = setup.augmenter([setup.config.augment.policy] * 2)
    generator = torch.Generator(device)
    images_BCHW = make_images(num_views // 2, IMAGE_SIZE).to(device)

    def augment(images_BCHW: Tensor, labels_B: Tensor | None) -> dict[str, Tensor]:
        views = augmenter.apply(images_BCHW, augmenter.draw(len(images_BCHW), generator), setup.view_dtype)
        return {str(number): view for number, view in enumerate(views)}

    z_ND = torch.randn(num_views, 128, device=device, requires_grad=True)
    labels_N = torch.randint(NUM_CLASSES, (num_views // 2,), device=device).repeat(2)

    def loss(labels_N: Tensor, _: Tensor | None) -> dict[str, Tensor]:
        value = tcl_loss(z_ND, labels_N)
        return {"loss": value.detach(), "gradient": torch.autograd.grad(value, z_ND)[0]}

    run_augment, run_loss = captured(augment, generator, device), captured(loss, torch.Generator(device), device)
    yield Contestant(name="augmentation", call=lambda: run_augment(images_BCHW, None), note="part")
    yield Contestant(name="loss", call=lambda: run_loss(labels_N, None), note="part")


def usual_training(setup: Setup, num_views: int) -> Contestant:
    """Views from torchvision in worker processes, and an eager step."""
    method = build_method(setup).train()
    optimizer = build_optimizer(method, "sgd", lr=1e-3, momentum=0.9, weight_decay=1e-4)
    labels_B = torch.randint(NUM_CLASSES, (num_views // 2,), device=setup.device)
    layout = torch.channels_last if setup.device.type == "cuda" else torch.contiguous_format
    workers = Workers(torchvision_views("autoaugment", make_images(num_views, IMAGE_SIZE))[0], setup.device)

    def step() -> None:
        views = workers.next().contiguous(memory_format=layout)
        with setup.autocast():
            loss = method(views.chunk(2), labels_B).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    ahead = 2 * available_cores()
    return Contestant(name="eager, torchvision workers", call=step, pause=workers.pause, ahead=ahead, note="peer")


def contestants(
    encoder: str, num_views: int, engines: list[str], device: torch.device, log: MetricsLog
) -> list[Contestant]:
    base = find_recipe("cifar100-tcl")().override(
        [f"model.encoder={encoder}", f"optim.batch_images={num_views // 2}", "run.log_every=20",
         f"run.device={device.type}"]
    )  # fmt: skip
    field: list[Contestant] = []
    first_loss = 0.0
    for engine in engines:
        trainer, batches = synthetic_trainer(base.override([f"run.engine={engine}"]))
        loss = float(trainer.take_step(*batches[0])["loss"].detach())
        first_loss = first_loss or loss
        turns = cycle(batches)
        one = Contestant(name=f"training, {engine}", call=partial(one_step, trainer, turns))
        if not abs(loss - first_loss) <= 0.01 * first_loss:
            one.problem = f"its first loss is {loss:.4f}, not {first_loss:.4f}"
        field.append(one)
    trainer.watch.begin(log, lambda done, text: None)

    def logged() -> None:
        metrics = trainer.take_step(*next(turns))
        trainer.watch.add(trainer.step, metrics)
        if trainer.step % trainer.log_every == 0:
            trainer.watch.ask(trainer.step, {"epoch": 0.0, "lr": trainer.lr}, *trainer.measured)

    field.append(Contestant(name=f"training, {engines[-1]}, logged", call=logged))
    setup, captures = trainer.setup, can_capture(device)
    views = torch.randn(num_views, 3, IMAGE_SIZE, IMAGE_SIZE, device=device)
    engine_alone = Engine(compiled=captures, captured=captures)
    alone = encoder_step(setup.spec, views, autocast=setup.autocast, engine=engine_alone, trained=True)
    bound = Contestant(name=BOUND, call=alone, note="bound")
    return [bound, *field, usual_training(setup, num_views), *parts(setup, num_views)]


def main() -> None:
    options = parser(__doc__, "train")
    options.add_argument("--encoders", type=words, default=["resnet18"])
    options.add_argument("--views", type=numbers, default=[256], help="per step, two of each image [default: 256]")
    options.add_argument("--engines", type=words, default=[], help="[default: all that the device has]")
    arguments = options.parse_args()
    device, out = start(arguments, "train")
    engines = arguments.engines or (["eager", "graph", "compile", "fused"] if device.type == "cuda" else ["eager"])
    sizes = list(product(arguments.encoders, arguments.views))
    rows: list[Row] = []
    drawing, panels = figure(len(sizes), 1, f"Training at {IMAGE_SIZE} px, views per second, {device.type}", 2.4)
    for (encoder, num_views), (axes,) in zip(sizes, panels, strict=True):
        torch.compiler.reset()
        with (
            tempfile.TemporaryDirectory() as folder,
            MetricsLog(Path(folder), resume_step=0, loggers=["tensorboard"]) as log,
        ):
            field = contestants(encoder, num_views, engines, device, log)
            race(field, device, arguments.seconds)
        new: list[Row] = []
        for one in field:
            row: Row = {"encoder": encoder, "views": num_views, "stage": one.name, "role": one.note or "whole"}
            if one.problem:
                print(f"{one.name}: {one.problem}")
                continue
            ms = median(one.ms)
            row |= {"ms": ms, "views_per_second": 1000 * num_views / ms, "first_seconds": one.first_seconds}
            new.append(row | {"of_bound": median(a / b for a, b in zip(field[0].ms, one.ms, strict=True))})
        rows += new
        cells = [
            (row["stage"], digits(row["ms"]), f"{row['views_per_second']:,.0f}", f"{100 * row['of_bound']:.1f} %")
            for row in new
        ]
        show(f"{encoder}, {num_views:,} views per step", ("stage", "ms", "views/s", f"of {BOUND}"), cells)
        write(out, device, {"bench": "train", "image_size": IMAGE_SIZE, "seconds": arguments.seconds, "rows": rows})
        whole = [row for row in new if row["role"] != "part"]
        colors = {row["stage"]: {"bound": MUTED, "peer": VERMILLION}.get(row["role"], BLUE) for row in whole}
        title = f"{encoder}, {num_views:,} views per step"
        dots(axes, title, {row["stage"]: row["views_per_second"] for row in whole}, colors, "views per second")
        release_memory(device)
    save(drawing, out.with_suffix(".png"))


if __name__ == "__main__":
    main()
