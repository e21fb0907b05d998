"""The command line: parse, call, print."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from contune.errors import UserError

if TYPE_CHECKING:
    from contune.config import Config

app = typer.Typer(
    help="Tuned contrastive learning: train, measure and take home an image encoder.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    add_completion=False,
)

Arguments = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[RECIPE] [KEY=VALUE]...",
        help="A recipe and settings that differ from it.",
        show_default=False,
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY=VALUE]...", help="Settings that differ.", show_default=False),
]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
DEFAULT_RECIPE = "digits"


def main() -> None:
    """Runs a command; bad input ends in one sentence and exit code 2."""
    try:
        app()
    except UserError as error:
        if "--debug" in sys.argv:
            raise
        if os.environ.get("RANK", "0") == "0":  # of several processes one says it
            print(f"contune: {error}", file=sys.stderr)
        sys.exit(2)


@app.command()
def train(
    arguments: Arguments = None,
    out: Annotated[Path | None, typer.Option(help="The run folder; runs/RECIPE if not given.")] = None,
    seeds: Annotated[str, typer.Option(help="Seeds with commas between: a run for each, in a folder of its own.")] = "",
    parallel: Annotated[
        int | None, typer.Option(help="With --seeds, runs at a time; if not given up to 4 on a GPU, 1 on a CPU.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Train an encoder, measure it, write a report.

    The same command again goes on with a run that was stopped.

    Examples: `contune train` · `contune train digits method.k1=1000 optim.epochs=40` ·
    `contune train images data.path=photos/ --out runs/photos` ·
    `contune train cifar100-tcl data.path=data/ --seeds 0,1,2` ·
    `torchrun --nproc-per-node=8 -m contune train cifar100-tcl data.path=data/`
    """
    recipe, overrides = _split(arguments)
    if seeds:
        _train_seeds(recipe, overrides, _numbers(seeds), parallel, out, debug)
    elif parallel is not None:
        raise UserError(f"--parallel {parallel} is for several runs at a time; name their seeds, such as --seeds 0,1,2")
    else:
        _train_one(recipe, overrides, out)


def _train_one(recipe: str, overrides: list[str], out: Path | None) -> None:
    from contune.console import say, show_measures
    from contune.run import RunFolder
    from contune.train.session import train as run_training
    from contune.train.stopwatch import in_words

    config = _config(recipe, overrides)
    folder = RunFolder(out or Path("runs") / _run_name(recipe, overrides))
    try:
        result = run_training(config, folder)
    except KeyboardInterrupt:
        say(f"\nstopped; the same command goes on from the last checkpoint in {folder.path}")
        raise typer.Exit(130) from None
    if not result:
        return  # a process that only helped to train
    say()
    show_measures(result)
    if "stages" in result:
        say(f"\ntook     {in_words(result['stages'])}")
    say(f"encoder  {folder.encoder_file}   (contune.load_encoder({str(folder.path)!r}))")
    if folder.report_file.exists():
        say(f"report   {folder.report_file}")


def _train_seeds(
    recipe: str, overrides: list[str], seeds: list[int], parallel: int | None, out: Path | None, debug: bool
) -> None:
    from contune.console import say, show_table
    from contune.train.many import Job, run_many
    from contune.train.summary import COLUMNS, summary

    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UserError("--seeds starts processes of its own; leave torchrun out, or give each seed with run.seed")
    if any(word.startswith("run.seed=") for word in overrides):
        raise UserError("--seeds and run.seed both name seeds; leave one of them out")
    jobs = []
    for seed in seeds:
        own = overrides if seed == _config(recipe, overrides).run.seed else [*overrides, f"run.seed={seed}"]
        folder = out / f"seed{seed}" if out is not None else Path("runs") / _run_name(recipe, own)
        jobs.append(Job(_config(recipe, own), folder, f"seed {seed}"))
    try:
        results = run_many(jobs, parallel)
    except KeyboardInterrupt:
        say("\nstopped; the same command goes on from the last checkpoint of each run")
        raise typer.Exit(130) from None
    show_table(COLUMNS, summary(jobs, results), numbers=COLUMNS[1:3])
    failed = [(job, result) for job, result in zip(jobs, results, strict=True) if "error" in result]
    for job, result in failed:
        print(f"contune: {job.title}: {result['error']}", file=sys.stderr)
        if debug:
            print(result["details"], file=sys.stderr)
    if failed:
        raise typer.Exit(2)


@app.command(name="eval")
def evaluate(
    run: Annotated[Path, typer.Argument(help="A run folder.", show_default=False)],
    overrides: Overrides = None,
    debug: Debug = False,
) -> None:
    """Measure a trained encoder again, on other data or under another protocol.

    Examples: `contune eval runs/digits` · `contune eval runs/digits eval.linear=paper` ·
    `contune eval runs/photos data.path=more-photos/`
    """
    from contune.console import show_measures
    from contune.run import RunFolder
    from contune.train.session import evaluate_run

    show_measures(evaluate_run(RunFolder(run), overrides or []))


@app.command()
def experiment(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME] [KEY=VALUE]...", help="An experiment and settings for all its runs.", show_default=False
        ),
    ] = None,
    seeds: Annotated[str, typer.Option(help="How many, such as 3 for 0, 1 and 2; or which, such as 0,4.")] = "1",
    parallel: Annotated[
        int | None, typer.Option(help="Runs at a time; if not given up to 4 on a GPU, 1 on a CPU.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The folder; runs/experiments/NAME if not given.")] = None,
    draw: Annotated[bool, typer.Option("--draw", help="Run nothing, draw what there is.")] = False,
    debug: Debug = False,
) -> None:
    """Do a set of runs and draw them together; without a name, list the sets.

    Runs that are done are not repeated: the same command again goes on where it was stopped.

    Examples: `contune experiment` · `contune experiment ssl-digits --seeds 3` ·
    `contune experiment ssl-cifar100 data.path=data/ optim.epochs=1000`
    """
    from contune.console import say, show_table
    from contune.experiments import EXPERIMENTS
    from contune.recipes import summary

    words = arguments or []
    if not words or "=" in words[0]:
        show_table(("experiment", "what it compares"), [(name, summary(make)) for name, make in EXPERIMENTS.items()])
        say("\nstart one: contune experiment NAME [--seeds 3] [KEY=VALUE ...]")
        return
    _experiment(words[0], words[1:], _seeds(seeds), parallel, out, draw)


def _experiment(
    name: str, overrides: list[str], seeds: list[int], parallel: int | None, out: Path | None, draw: bool
) -> None:
    from contune.console import say, show_table
    from contune.experiments import board, find_experiment
    from contune.experiments.plan import folder_name

    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UserError("an experiment starts processes of its own; leave torchrun out")
    found = find_experiment(name)
    folder = out or Path("runs") / "experiments" / folder_name(name, overrides)
    try:
        if draw:
            outcomes = board.found(found, overrides=overrides, seeds=seeds, folder=folder)
        else:
            outcomes = board.run(found, overrides=overrides, seeds=seeds, folder=folder, parallel=parallel)
    except KeyboardInterrupt:
        say(f"\nstopped; the same command goes on, and what is done is drawn in {folder}")
        raise typer.Exit(130) from None
    table = found.table(outcomes)
    show_table(table.columns, [[cell.text for cell in row] for row in table.rows], numbers=table.numbers)
    say(f"\ntable    {folder}/table.md, table.tex, table.html\nfigure   {folder}/figure.png, figure.svg")
    if any(outcome.failures for outcome in outcomes):
        raise typer.Exit(2)


@app.command()
def recipes(
    data: Annotated[str | None, typer.Argument(help="Only those of this data set.", show_default=False)] = None,
) -> None:
    """List the recipes: complete settings by name.

    Examples: `contune recipes` · `contune recipes cifar100`
    """
    from contune.console import say, show_table
    from contune.errors import unknown
    from contune.recipes import RECIPES, by_data, summary

    groups = by_data()
    if data is not None and data not in groups:
        raise unknown("data set", data, groups)
    rows: list[tuple[str, str]] = []
    for names in groups.values() if data is None else [groups[data]]:
        rows += [*([("", "")] if rows else []), *((name, summary(RECIPES[name])) for name in names)]
    show_table(("recipe", "what it trains"), rows)
    say("\nstart one: contune train RECIPE [KEY=VALUE ...]      look first: contune doctor RECIPE")


@app.command()
def doctor(arguments: Arguments = None, debug: Debug = False) -> None:
    """Check machine, data and settings before a run, and say what it would change.

    Examples: `contune doctor` · `contune doctor cifar100-tcl data.path=data/`
    """
    from contune.console import say
    from contune.doctor import examine

    recipe, overrides = _split(arguments)
    findings = list(examine(_config(recipe, overrides)))
    for finding in findings:
        say(f"{finding.mark} {finding.text}")
    if any(finding.is_bad for finding in findings):
        raise typer.Exit(1)


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
    only: Annotated[str, typer.Option(help="Beginnings of contestants' names, with commas between.")] = "",
    out: Annotated[Path | None, typer.Option(help="The JSON file; in benchmarks/results if not given.")] = None,
    debug: Debug = False,
) -> None:
    """Time and weigh contrastive losses: contune's backends, the authors', SupContrast's, other libraries'.

    Examples: `contune bench loss` · `contune bench loss --sizes 1024,32768 --dims 128,512`
    """
    from contune.bench.loss import run_loss_bench

    run_loss_bench(
        sizes=_numbers(sizes),
        dims=_numbers(dims),
        device=device,
        dtype=dtype,
        seconds=seconds,
        memory=memory,
        only=_words(only),
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
        policies=_words(policies),
        num_views=batch,
        image_size=image_size,
        device=device,
        seconds=seconds,
        only=_words(only),
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

    Without --engines: eager, graph and compile on a GPU, eager on a CPU.

    Examples: `contune bench train` · `contune bench train --encoders resnet18,resnet50 --views 256,1024`
    """
    from contune.bench.train import run_train_bench

    run_train_bench(
        encoders=_words(encoders),
        views=_numbers(views),
        engines=_words(engines),
        device=device,
        seconds=seconds,
        out=out,
    )


@app.callback(invoke_without_command=True)
def options(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        from contune import __version__

        print(f"contune {__version__}")
        raise typer.Exit


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise UserError(f"{text!r} is not a list of whole numbers; write for example 256,1024") from None


def _seeds(text: str) -> list[int]:
    """`3` is how many, `0,4` is which."""
    numbers = _numbers(text)
    if not numbers or min(numbers) < 0 or text.strip() == "0":
        raise UserError(f"--seeds {text} names no seed; write how many, such as 3, or which, such as 0,4")
    return numbers if "," in text else list(range(numbers[0]))


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _split(arguments: list[str] | None) -> tuple[str, list[str]]:
    """The recipe, the first word if it is no KEY=VALUE, and the rest."""
    words = arguments or []
    if words and "=" not in words[0]:
        return words[0], words[1:]
    return DEFAULT_RECIPE, words


def _config(recipe: str, overrides: list[str]) -> "Config":
    from contune.recipes import find_recipe

    return find_recipe(recipe)().override(overrides)


def _run_name(recipe: str, overrides: list[str]) -> str:
    """The recipe's, and where settings differ from it what stands for them all."""
    return recipe if not overrides else f"{recipe}-{_config(recipe, overrides).fingerprint()}"
