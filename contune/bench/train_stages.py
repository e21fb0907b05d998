"""What `contune bench train` runs: the whole of training under each engine, its parts alone, and what bounds it."""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import cycle
from pathlib import Path

import torch
from torch import Tensor

from contune.bench.augment_task import MEAN, STD, Task
from contune.bench.augment_torchvision import torchvision_contestants
from contune.bench.encoder_step import encoder_step
from contune.bench.laps import Stage
from contune.config import Config
from contune.data.images import TensorImages
from contune.data.imageset import Dataset, ImageSet
from contune.data.loader import Batch, ResidentLoader
from contune.device import choose_autocast, choose_convolutions
from contune.losses import tcl_loss
from contune.models import EncoderSpec
from contune.recipes import find_recipe
from contune.run import RunFolder
from contune.train.engine import Engine, can_capture
from contune.train.engine import CapturedStep
from contune.train.log import MetricsLog
from contune.train.optim import build_optimizer
from contune.train.setup import Setup, build_method
from contune.train.trainer import Trainer

NUM_IMAGES, NUM_CLASSES, IMAGE_SIZE = 8192, 100, 32
READY_BATCHES = 4
BOUND = "encoder alone"
"""Forward, backward and optimizer of the encoder on views that are there already: what training cannot pass."""


@contextmanager
def stages(encoder: str, num_views: int, engines: Sequence[str], device: torch.device) -> Iterator[list[Stage]]:
    """Two views of random images of CIFAR's size; how fast a step is does not depend on what is in them."""
    (with_workers,) = [c for c in torchvision_contestants(["autoaugment"]) if c.name.endswith("(workers)")]
    task = Task(policy="autoaugment", num_views=num_views, image_size=IMAGE_SIZE, device=device)
    with (
        tempfile.TemporaryDirectory(prefix="contune-bench-") as folder,
        MetricsLog(Path(folder), resume_step=0, tensorboard=True) as log,
        with_workers.start(task) as views,
    ):
        usual = Stage(
            name="eager, torchvision workers",
            role="peer",
            step=_usual_training(synthetic_setup(_config(encoder, num_views, "eager"), device), views.call),
            pause=views.pause,
            ahead=views.ahead,
        )
        yield [*_own_stages(encoder, num_views, engines, device, log), usual]


def _own_stages(
    encoder: str, num_views: int, engines: Sequence[str], device: torch.device, log: MetricsLog
) -> Iterator[Stage]:
    setup = synthetic_setup(_config(encoder, num_views, "eager"), device)
    yield Stage(name=BOUND, role="bound", step=_encoder_alone(setup, num_views))
    for engine in engines:
        trainer = synthetic_trainer(synthetic_setup(_config(encoder, num_views, engine), device))
        batches = cycle(ready_batches(trainer))
        yield Stage(name=f"training, {engine}", role="whole", step=partial(one_step, trainer, batches))
    if engines:
        yield Stage(name=f"training, {engines[-1]}, logged", role="whole", step=_logged(trainer, batches, log))
    yield Stage(name="augmentation", role="part", step=_augmentation(setup))
    yield Stage(name="loss", role="part", step=_loss(num_views, device))


def one_step(trainer: Trainer, batches: Iterator[Batch]) -> object:
    return trainer.take_step(*next(batches))


def _config(encoder: str, num_views: int, engine: str) -> Config:
    return find_recipe("cifar100-tcl")().override(
        [
            f"model.encoder={encoder}", f"optim.batch_images={num_views // 2}", f"run.engine={engine}",
            "run.log_every=20",
        ]
    )  # fmt: skip


def synthetic_setup(config: Config, device: torch.device) -> Setup:
    """As the config says, but on random images of CIFAR's size."""
    draw = torch.Generator().manual_seed(0)
    shape = (max(NUM_IMAGES, READY_BATCHES * config.optim.batch_images), 3, IMAGE_SIZE, IMAGE_SIZE)
    images = ImageSet(
        images=TensorImages(torch.randint(256, shape, dtype=torch.uint8, generator=draw)),
        labels=torch.randint(NUM_CLASSES, shape[:1], generator=draw),
        names=[""] * shape[0],
    )
    dataset = Dataset(
        name="random images", train=images, test=None, val=None,
        class_names=tuple(map(str, range(NUM_CLASSES))), image_size=IMAGE_SIZE, channels=3, mean=MEAN, std=STD,
    )  # fmt: skip
    spec = EncoderSpec(
        encoder=config.model.encoder, stem=config.model.stem, norm=config.model.norm, image_size=IMAGE_SIZE,
        channels=3, mean=MEAN, std=STD,
    )  # fmt: skip
    autocast = choose_autocast(config.run.precision, device)
    choose_convolutions(autotune=config.run.autotune)
    return Setup(config=config, dataset=dataset, spec=spec, device=device, autocast=autocast)


def _usual_training(setup: Setup, next_views: Callable[[], Tensor]) -> Callable[[], object]:
    """As training loops mostly are: views from torchvision in worker processes, a step that Python drives."""
    method = build_method(setup).train()
    optimizer = build_optimizer(method, "sgd", lr=1e-3, momentum=0.9, weight_decay=1e-4)
    labels_B = torch.randint(NUM_CLASSES, (setup.config.optim.batch_images,), device=setup.device)
    memory_format = torch.channels_last if setup.device.type == "cuda" else torch.contiguous_format

    def step() -> None:
        views = next_views().contiguous(memory_format=memory_format)
        with setup.autocast():
            loss = method(views.chunk(2), labels_B).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def synthetic_trainer(setup: Setup) -> Trainer:
    train = setup.dataset.train
    loader = ResidentLoader(train.resident(IMAGE_SIZE, 3).to(setup.device), train.labels)
    trainer = Trainer(setup, build_method(setup), loader, RunFolder("unused"))
    trainer.method.train()
    return trainer


def ready_batches(trainer: Trainer) -> list[Batch]:
    """On the device already."""
    batch = trainer.optim.batch_images
    indices = torch.randperm(len(trainer.loader))[: batch * READY_BATCHES].split(batch)
    return list(trainer.loader.batches(indices))


def _logged(trainer: Trainer, batches: Iterator[Batch], log: MetricsLog) -> Callable[[], None]:
    """The same with all that a person sees of it: means, gradient responses, metrics.jsonl, TensorBoard, progress."""
    watch = trainer.watch(log, lambda done, text: None)

    def step() -> None:
        watch.add(trainer.take_step(*next(batches)))
        if trainer.step % trainer.log_every == 0:
            watch.ask(trainer.moment)

    return step


def _encoder_alone(setup: Setup, num_views: int) -> Callable[[], object]:
    """Compiled with its autocast and recorded on a GPU, as it is on a CPU."""
    on_gpu = can_capture(setup.device)
    views = torch.randn(num_views, 3, IMAGE_SIZE, IMAGE_SIZE, device=setup.device)
    engine = Engine(compiled=on_gpu, captured=on_gpu)
    return encoder_step(setup.spec, views, autocast=setup.autocast, engine=engine, trained=True)


def _augmentation(setup: Setup) -> Callable[[], object]:
    """The parameters of a batch drawn, and its views computed."""
    config, device = setup.config, setup.device
    augmenter = setup.augmenter([config.augment.policy] * 2)
    generator = torch.Generator(device)
    images_BCHW = setup.dataset.train.resident(IMAGE_SIZE, 3)[: config.optim.batch_images].to(device)

    def step(images_BCHW: Tensor, labels_B: Tensor | None) -> dict[str, Tensor]:
        views = augmenter.apply(images_BCHW, augmenter.draw(len(images_BCHW), generator), setup.view_dtype)
        return {str(number): view for number, view in enumerate(views)}

    run = CapturedStep(step, generator) if can_capture(device) else step
    return lambda: run(images_BCHW, None)


def _loss(num_views: int, device: torch.device) -> Callable[[], object]:
    z_ND = torch.randn(num_views, 128, device=device, requires_grad=True)
    labels_N = torch.randint(NUM_CLASSES, (num_views // 2,), device=device).repeat(2)

    def step(labels_N: Tensor, _: Tensor | None) -> dict[str, Tensor]:
        loss = tcl_loss(z_ND, labels_N)
        (gradient,) = torch.autograd.grad(loss, z_ND)
        return {"loss": loss.detach(), "gradient": gradient}

    run = CapturedStep(step, torch.Generator(device)) if can_capture(device) else step
    return lambda: run(labels_N, None)
