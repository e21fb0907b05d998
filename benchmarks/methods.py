"""Does a training step of each method cost what its encoder passes cost?

    python benchmarks/methods.py                                     # every method's CIFAR-100 recipe, ResNet-18
    python benchmarks/methods.py --methods byol,tcl --engine compile
    python benchmarks/methods.py --methods simclr,byol --encoder resnet-mini --images 8 --seconds 0.2   # on a CPU

Hardware: one H200 (2 minutes) or a CPU. Expected on an H200 with 256 images and CUDA graphs: a step takes 1.03 (TCL) to
1.13 times (ARB) as long as its encoder passes alone (results/methods-h200.json, methods-h200-arb.json).

Each recipe runs through the real Trainer on random images. Hooks count which images go through an encoder, with a
gradient or without; each such pass is timed alone under the same engine, in the same laps. The ratio is the median over
laps of the step's time over the sum of its passes'. Before timing, the first loss must be finite.
"""

import math
from collections.abc import Iterator
from itertools import cycle
from statistics import median
from typing import NamedTuple

import torch
from common import Contestant, Row, digits, dots, figure, parser, race, release_memory, save, show, start, words, write
from torch import Tensor, nn
from train import IMAGE_SIZE, encoder_step, synthetic_trainer

from contune.config import Config
from contune.data.images import Batch
from contune.recipes import find_recipe, ssl
from contune.report.style import BLUE
from contune.training.engine import can_capture
from contune.training.trainer import Trainer

RECIPES = {
    **{name: f"cifar100-{name}" for name in ssl.ROWS},
    "tcl": "cifar100-tcl",
    "supcon": "cifar100-supcon",
    "cross-entropy": "cifar100-ce",
}


class Pass(NamedTuple):
    """Images that go through an encoder at once."""

    images: int
    size: int
    """Their side in pixels."""
    trained: bool
    """Whether a gradient will come back."""


def encoders_in(kind: type[nn.Module], module: nn.Module) -> Iterator[nn.Module]:
    """The outermost ones: an encoder may have parts of its own type."""
    if type(module) is kind:
        yield module
    else:
        for child in module.children():
            yield from encoders_in(kind, child)


def passes_of(trainer: Trainer, batch: Batch) -> list[Pass]:
    """Counted in a forward pass before anything is compiled or captured."""
    passes: list[Pass] = []

    def note(encoder: nn.Module, inputs: tuple[Tensor], features_ND: Tensor) -> None:
        passes.append(Pass(len(inputs[0]), inputs[0].shape[-1], features_ND.requires_grad))

    method, (images_BCHW, labels_B) = trainer.method, batch
    hooks = [encoder.register_forward_hook(note) for encoder in encoders_in(type(method.encoder), method)]
    drawn = trainer.augmenter.draw(len(images_BCHW), trainer.generator)
    views = trainer.augmenter.apply(images_BCHW, drawn, trainer.setup.view_dtype)
    with trainer.setup.autocast():
        method(views, labels_B)
    for hook in hooks:
        hook.remove()
    return passes


def measure(name: str, config: Config, seconds: float) -> Row:
    torch.compiler.reset()  # it compiles a function only so many times, and all methods share one
    trainer, batches = synthetic_trainer(config)
    passes = passes_of(trainer, batches[0])
    loss = float(trainer.take_step(*batches[0])["loss"].detach())
    if not math.isfinite(loss):
        raise ValueError(f"the first loss is {loss}")
    turns, setup = cycle(batches), trainer.setup
    step = Contestant(name="training step", call=lambda: trainer.take_step(*next(turns)))
    alone: dict[Pass, Contestant] = {}
    for one in dict.fromkeys(passes):
        views = torch.randn(one.images, setup.spec.channels, one.size, one.size, device=setup.device)
        call = encoder_step(
            setup.spec, views.to(setup.view_dtype), autocast=setup.autocast, engine=trainer.engine, trained=one.trained
        )
        alone[one] = Contestant(name=str(one), call=call)
    race([step, *alone.values()], setup.device, seconds)
    problems = [one.problem for one in (step, *alone.values()) if one.problem]
    if problems:
        raise RuntimeError(problems[0])
    expected = [sum(alone[one].ms[lap] for one in passes) for lap in range(len(step.ms))]
    return {
        "method": name,
        "views": trainer.views_per_step,
        "trained": sum(one.images for one in passes if one.trained),
        "forward": sum(one.images for one in passes if not one.trained),
        "passes": [one._asdict() | {"ms": median(alone[one].ms)} for one in passes],
        "ms": median(step.ms),
        "views_per_second": 1000 * trainer.views_per_step / median(step.ms),
        "expected_ms": median(expected),
        "ratio": median(a / b for a, b in zip(step.ms, expected, strict=True)),
        "first_seconds": step.first_seconds,
    }


def main() -> None:
    options = parser(__doc__, "methods")
    options.add_argument("--methods", type=words, default=list(RECIPES), help="[default: all]")
    options.add_argument("--encoder", default="resnet18")
    options.add_argument("--images", type=int, default=256, help="per step, before augmentation [default: 256]")
    options.add_argument("--engine", default="", help="eager, graph, fused or compile [default: graph on a GPU]")
    arguments = options.parse_args()
    device, out = start(arguments, "methods")
    engine = arguments.engine or ("graph" if can_capture(device) else "eager")
    settings = {"encoder": arguments.encoder, "images": arguments.images, "engine": engine, "image_size": IMAGE_SIZE}
    rows: list[Row] = []
    failed: dict[str, str] = {}
    for name in arguments.methods:
        config = find_recipe(RECIPES[name])().override(
            [
                f"model.encoder={arguments.encoder}",
                f"optim.batch_images={arguments.images}",
                f"run.engine={engine}",
                f"run.device={device.type}",
            ]
        )
        try:
            rows.append(measure(name, config, arguments.seconds))
        except Exception as error:  # one method that fails must not stop the others
            failed[name] = f"{type(error).__name__}: {error}"
            print(f"{name}: {failed[name]}")
        write(out, device, {"bench": "methods", **settings, "rows": rows, "failed": failed})
        release_memory(device)
    cells = [
        (
            row["method"],
            f"{row['trained']:,} trained + {row['forward']:,} forward",
            digits(row["ms"]),
            f"{row['views_per_second']:,.0f}",
            digits(row["expected_ms"]),
            f"{row['ratio']:.2f}",
        )
        for row in rows
    ]
    columns = ("method", "images through encoders", "ms", "views/s", "passes alone, ms", "ratio")
    show(f"{arguments.encoder}, {arguments.images:,} images per step, {engine}", columns, cells)
    if rows:
        title = f"A training step over its encoder passes alone, {arguments.encoder}"
        drawing, ((axes,),) = figure(1, 1, title, 0.8 + 0.3 * len(rows))
        points = {row["method"]: row["ratio"] for row in rows}
        dots(axes, f"{arguments.images:,} images, {engine}", points, dict.fromkeys(points, BLUE), "ratio of times")
        save(drawing, out.with_suffix(".png"))


if __name__ == "__main__":
    main()
