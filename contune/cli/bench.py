"""`contune bench`."""

from pathlib import Path
from typing import Annotated

import typer

from contune.cli import Debug, app, parse_ints

bench = typer.Typer(help="Measure contune beside its peers.", no_args_is_help=True)
app.add_typer(bench, name="bench")


@bench.command(name="loss")
def bench_loss(
    sizes: Annotated[str, typer.Option(help="Batch sizes N, all views counted.")] = "256,1024,4096",
    dims: Annotated[str, typer.Option(help="Embedding sizes d.")] = "128",
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    dtype: Annotated[str, typer.Option(help="Of the embeddings: float32, bfloat16, float16.")] = "float32",
    seconds: Annotated[float, typer.Option(help="For each contestant at each size.")] = 1.0,
    memory: Annotated[bool, typer.Option(help="On a CPU, measure peak memory too.")] = False,
    recorded: Annotated[bool, typer.Option(help="On a GPU, everyone's pass as a CUDA graph, replayed.")] = False,
    only: Annotated[str, typer.Option(help="Beginnings of contestants' names, with commas between.")] = "",
    out: Annotated[Path | None, typer.Option(help="The JSON file; in benchmarks/results if not given.")] = None,
    debug: Debug = False,
) -> None:
    """Time and weigh contrastive losses: contune's backends, the authors', SupContrast's, other libraries'.

    Examples: `contune bench loss` · `contune bench loss --sizes 1024,32768 --dims 128,512`
    """
    from contune.bench.loss import run_loss_bench

    run_loss_bench(
        sizes=parse_ints(sizes, "256,1024"),
        dims=parse_ints(dims, "128,512"),
        device=device,
        dtype=dtype,
        seconds=seconds,
        memory=memory,
        recorded=recorded,
        only=words_in(only),
        out=out,
    )


@bench.command(name="augment")
def bench_augment(
    policies: Annotated[str, typer.Option(help="Names, with commas between.")] = "autoaugment,simaugment,crop-flip",
    batch: Annotated[int, typer.Option(help="Views in a call.")] = 512,
    image_size: Annotated[int, typer.Option(help="Of images and views, in pixels.")] = 32,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    seconds: Annotated[float, typer.Option(help="For each contestant at each policy.")] = 3.0,
    only: Annotated[str, typer.Option(help="Beginnings of contestants' names, with commas between.")] = "",
    out: Annotated[Path | None, typer.Option(help="The JSON file; in benchmarks/results if not given.")] = None,
    debug: Debug = False,
) -> None:
    """Count views a second: contune's backends, torchvision image by image with workers and without, kornia.

    Examples: `contune bench augment` · `contune bench augment --policies simaugment --batch 256 --image-size 64` ·
    `contune bench augment --only "contune torch,kornia"`
    """
    from contune.bench.augment import run_augment_bench

    run_augment_bench(
        policies=words_in(policies),
        num_views=batch,
        image_size=image_size,
        device=device,
        seconds=seconds,
        only=words_in(only),
        out=out,
    )


@bench.command(name="train")
def bench_train(
    encoders: Annotated[str, typer.Option(help="Names, with commas between.")] = "resnet18",
    views: Annotated[str, typer.Option(help="In a step, two of each image.")] = "256",
    engines: Annotated[str, typer.Option(help="Values of run.engine; the last is timed with logging too.")] = "",
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    seconds: Annotated[float, typer.Option(help="For each stage at each size.")] = 3.0,
    out: Annotated[Path | None, typer.Option(help="The JSON file; in benchmarks/results if not given.")] = None,
    debug: Debug = False,
) -> None:
    """Count views a second of training under each engine, of its parts, and of what bounds it: the encoder alone.

    Without --engines: eager, graph, compile and fused on a GPU, eager on a CPU.

    Examples: `contune bench train` · `contune bench train --encoders resnet18,resnet50 --views 256,1024`
    """
    from contune.bench.train import run_train_bench

    run_train_bench(
        encoders=words_in(encoders),
        views=parse_ints(views, "256,1024"),
        engines=words_in(engines),
        device=device,
        seconds=seconds,
        out=out,
    )


@bench.command(name="methods")
def bench_methods(
    methods: Annotated[str, typer.Option(help="Names, with commas between; all if not given.")] = "",
    encoder: Annotated[str, typer.Option(help="Of all methods.")] = "resnet18",
    images: Annotated[int, typer.Option(help="In a step, before there are views of them.")] = 256,
    engine: Annotated[str, typer.Option(help="eager, graph, fused or compile, of steps and passes.")] = "",
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    seconds: Annotated[float, typer.Option(help="For each step and each encoder pass.")] = 2.0,
    out: Annotated[Path | None, typer.Option(help="The JSON file; in benchmarks/results if not given.")] = None,
    debug: Debug = False,
) -> None:
    """Time a training step of every method beside its encoder passes alone: what is it that a method costs?

    A method's passes are counted while it runs: BYOL, for one, has the views of a batch through two encoders and the
    gradient back through one. Without --engine: graph on a GPU, eager on a CPU.

    Examples: `contune bench methods` · `contune bench methods --methods byol,simclr --encoder resnet50 --images 128`
    """
    from contune.bench.methods import run_methods_bench

    run_methods_bench(
        methods=words_in(methods),
        encoder=encoder,
        images=images,
        engine=engine,
        device=device,
        seconds=seconds,
        out=out,
    )


def words_in(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]
