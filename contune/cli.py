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
    debug: Debug = False,
) -> None:
    """Train an encoder, measure it, write a report.

    The same command again goes on with a run that was stopped.

    Examples: `contune train` · `contune train digits method.k1=1000 optim.epochs=40` ·
    `contune train images data.path=photos/ --out runs/photos` ·
    `torchrun --nproc-per-node=8 -m contune train cifar100-tcl data.path=data/`
    """
    from contune.console import say, show_measures
    from contune.run import RunFolder
    from contune.train.session import train as run_training

    recipe, overrides = _split(arguments)
    config = _config(recipe, overrides)
    name = recipe if not overrides else f"{recipe}-{config.fingerprint()}"
    folder = RunFolder(out or Path("runs") / name)
    try:
        result = run_training(config, folder)
    except KeyboardInterrupt:
        say(f"\nstopped; the same command goes on from the last checkpoint in {folder.path}")
        raise typer.Exit(130) from None
    if not result:
        return  # a process that only helped to train
    say()
    show_measures(result)
    say(f"\nencoder  {folder.encoder_file}   (contune.load_encoder({str(folder.path)!r}))")
    if folder.report_file.exists():
        say(f"report   {folder.report_file}")


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
def recipes() -> None:
    """List the recipes: complete settings by name.

    Example: `contune recipes`
    """
    from contune.console import say, show_table
    from contune.recipes import RECIPES, summary

    show_table(("recipe", "what it trains"), [(name, summary(recipe)) for name, recipe in RECIPES.items()])
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
        only=[name.strip() for name in only.split(",") if name.strip()],
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


def _split(arguments: list[str] | None) -> tuple[str, list[str]]:
    """The recipe, the first word if it is no KEY=VALUE, and the rest."""
    words = arguments or []
    if words and "=" not in words[0]:
        return words[0], words[1:]
    return DEFAULT_RECIPE, words


def _config(recipe: str, overrides: list[str]) -> "Config":
    from contune.recipes import find_recipe

    return find_recipe(recipe)().override(overrides)
