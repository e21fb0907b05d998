"""`contune bench methods`: whether a training step of each method costs what its encoder passes cost."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Any

import torch

from contune.bench import record
from contune.bench.encoder_step import encoder_step
from contune.bench.failure import Failure, attempt, release_memory
from contune.bench.laps import Stage, run_laps
from contune.bench.method_passes import Pass, encoder_passes, num_images, passes_in_words
from contune.bench.methods_plot import draw
from contune.bench.request import clocked_device
from contune.bench.show import duration
from contune.bench.train_stages import IMAGE_SIZE, one_step, ready_batches, synthetic_setup, synthetic_trainer
from contune.config import ENGINES, Config
from contune.console import progress, say, show_table
from contune.data.loader import Batch
from contune.errors import UserError, unknown
from contune.models import build_encoder
from contune.recipes import find_recipe, ssl
from contune.train.engine import can_capture
from contune.train.trainer import Trainer

RECIPES_BY_METHOD = {
    **{name: f"cifar100-{name}" for name in ssl.ROWS},
    "tcl": "cifar100-tcl",
    "supcon": "cifar100-supcon",
    "cross-entropy": "cifar100-ce",
}
WHOLE = "training step"


def run_methods_bench(
    *,
    methods: Sequence[str] = (),
    encoder: str = "resnet18",
    images: int = 256,
    engine: str = "",
    device: str = "auto",
    seconds: float = 2.0,
    out: Path | None = None,
) -> dict[str, Any]:
    """Times a step of each method beside its encoder passes; returns what is also written to `out` as JSON.

    Args:
        methods: with their CIFAR-100 recipes; none: all of them.
        images: in a batch, before there are views of them.
        engine: of `run.engine`, for steps and passes alike; none: graph on a GPU, eager on a CPU.
        seconds: for each step and each pass, give or take, after it was compiled and recorded.
    """
    where = clocked_device(device)
    engine = engine or ("graph" if can_capture(where) else "eager")
    methods = list(dict.fromkeys(methods)) or list(RECIPES_BY_METHOD)
    _check(methods, encoder, images, engine, seconds, where)
    out = out or record.default_path("methods", where)
    record.make_ready(out, "methods")
    plan = {"encoder": encoder, "images": images, "engine": engine, "image_size": IMAGE_SIZE, "seconds": seconds}
    rows: list[dict[str, Any]] = []
    failed: dict[str, str] = {}
    result: dict[str, Any] = {}
    with progress("bench methods", len(methods), unit="methods") as advance:
        for done, method in enumerate(methods):
            advance(done, method)
            config = _config(method, encoder, images, engine)
            row = attempt(partial(_measure, method, config, where, seconds), where)
            if isinstance(row, Failure):
                failed[method] = row.reason
                say(f"{method}: {row.reason}")
            else:
                rows.append(row)
            result = {"bench": "methods", **record.circumstances(where), **plan, "rows": rows, "failed": failed}
            record.write(result, out)  # after every method, so that a run that is stopped leaves what it has
            release_memory(where)
            advance(done + 1, method)
    if not rows:
        raise UserError(f"no method could be timed; {out} has the reasons")
    show(result)
    say(f"\nrows     {out}\ndrawing  {draw(result, out)}")
    return result


def _check(
    methods: Sequence[str], encoder: str, images: int, engine: str, seconds: float, device: torch.device
) -> None:
    for method in methods:
        if method not in RECIPES_BY_METHOD:
            raise unknown("method", method, RECIPES_BY_METHOD)
    if images < 2:
        raise UserError(f"images must be at least 2, as losses compare them with each other, got {images}")
    if engine not in ENGINES or engine == "auto":
        raise unknown("engine", engine, [name for name in ENGINES if name != "auto"])
    if engine in ("graph", "fused") and not can_capture(device):
        raise UserError(f"engine {engine} takes a single process on a CUDA device; use eager or compile")
    if not seconds > 0:
        raise UserError(f"seconds must be above 0, got {seconds:g}")
    build_encoder(encoder)  # knows its name


def _config(method: str, encoder: str, images: int, engine: str) -> Config:
    return find_recipe(RECIPES_BY_METHOD[method])().override(
        [f"model.encoder={encoder}", f"optim.batch_images={images}", f"run.engine={engine}"]
    )


def _measure(method: str, config: Config, device: torch.device, seconds: float) -> dict[str, Any]:
    """The step and its passes in laps, side by side; the passes' encoders are their own, of the same kind."""
    torch.compiler.reset()  # it compiles a function only so many times, and all methods share one
    trainer = synthetic_trainer(synthetic_setup(config, device))
    batches = ready_batches(trainer)
    passes = _passes_of(trainer, batches[0])
    whole = Stage(name=WHOLE, role="whole", step=partial(one_step, trainer, cycle(batches)))
    alone = [Stage(name=str(one), role="part", step=_pass_alone(trainer, one)) for one in dict.fromkeys(passes)]
    timed = run_laps([whole, *alone], device, seconds)
    steps = [lap[WHOLE] for lap in timed.laps]
    expected = [sum(lap[str(one)] for one in passes) for lap in timed.laps]
    return {
        "method": method,
        "views": trainer.views_per_step,
        "trained": num_images(passes, trained=True),
        "forward": num_images(passes, trained=False),
        "passes": [one._asdict() | {"ms": 1000 * median(lap[str(one)] for lap in timed.laps)} for one in passes],
        "ms": 1000 * median(steps),
        "views_per_second": trainer.views_per_step / median(steps),
        "expected_ms": 1000 * median(expected),
        "ratio": median(step / cost for step, cost in zip(steps, expected, strict=True)),
        "first_seconds": timed.first_seconds[WHOLE],
        "steps": timed.steps[WHOLE],
        "engine": config.run.engine,
    }


def _passes_of(trainer: Trainer, batch: Batch) -> list[Pass]:
    """Counted in a forward pass of its own, before anything is compiled or recorded."""
    setup, (images_BCHW, labels_B) = trainer.setup, batch
    drawn = trainer.augmenter.draw(len(images_BCHW), trainer.generator)
    views = trainer.augmenter.apply(images_BCHW, drawn, setup.view_dtype)
    with setup.autocast():
        return encoder_passes(trainer.method, views, labels_B)


def _pass_alone(trainer: Trainer, one: Pass) -> Callable[[], object]:
    setup = trainer.setup
    shape = (one.images, setup.spec.channels, one.size, one.size)
    views = torch.randn(shape, device=setup.device).to(setup.view_dtype)
    return encoder_step(setup.spec, views, autocast=setup.autocast, engine=trainer.engine, trained=one.trained)


def show(result: dict[str, Any]) -> None:
    say(f"\n{result['encoder']}, {result['images']:,} images a step, {result['image_size']} px, {result['engine']}")
    table = [
        (
            row["method"],
            passes_in_words(row),
            duration(row["ms"]),
            f"{row['views_per_second']:,.0f}",
            duration(row["expected_ms"]),
            f"{row['ratio']:.2f}",
        )
        for row in result["rows"]
    ]
    columns = ("method", "images through encoders", "ms", "views/s", "its passes alone, ms", "ratio")
    show_table(columns, table, numbers=columns[2:])
