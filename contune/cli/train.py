"""`contune train` and `contune eval`."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from contune.cli.app import Debug, app
from contune.cli.words import Arguments, Overrides, config_of, numbers_in, recipe_and_overrides, run_name
from contune.errors import UserError
from contune.train.signals import stoppable


@app.command()
def train(
    arguments: Arguments = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="The run folder, with --seeds the one around them; if not given runs/RECIPE, where settings differ "
            "runs/RECIPE-HASH."
        ),
    ] = None,
    seeds: Annotated[str, typer.Option(help="Seeds with commas between: a run for each, in a folder of its own.")] = "",
    parallel: Annotated[
        int | None, typer.Option(help="With --seeds, runs at a time; if not given up to 4 on a GPU, 1 on a CPU.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Train an encoder, measure it, write a report.

    The same command again goes on with a run that was stopped: Ctrl-C and SIGTERM save first, and end with exit codes
    130 and 75.

    Examples: `contune train` · `contune train digits method.k1=1000 optim.epochs=40` ·
    `contune train images data.path=photos/ --out runs/photos` ·
    `contune train cifar100-tcl data.path=data/ --seeds 0,1,2` ·
    `torchrun --nproc-per-node=8 -m contune train cifar100-tcl data.path=data/`
    """
    recipe, overrides = recipe_and_overrides(arguments)
    if parallel is not None and not seeds:
        raise UserError(f"--parallel {parallel} is for several runs at a time; name their seeds, such as --seeds 0,1,2")
    with stoppable():  # from here on: libraries alone may take seconds to load
        if seeds:
            _train_seeds(recipe, overrides, numbers_in(seeds, "0,1,2"), parallel, out, debug)
        else:
            _train_one(recipe, overrides, out)


def _train_one(recipe: str, overrides: list[str], out: Path | None) -> None:
    from contune.console import say, show_measures
    from contune.run import RunFolder
    from contune.train.checkpoint import CHECKPOINT
    from contune.train.session import train as run_training
    from contune.train.stopwatch import in_words

    config = config_of(recipe, overrides)
    folder = RunFolder(out or Path("runs") / run_name(recipe, overrides))
    try:
        result = run_training(config, folder)
    except KeyboardInterrupt:
        checkpoint = folder.path / CHECKPOINT
        say(f"\nstopped; the same command {f'goes on from {checkpoint}' if checkpoint.exists() else 'starts again'}")
        raise typer.Exit(130) from None
    if not result:
        return  # a process that only helped to train
    say()
    show_measures(result)
    if "stages" in result:
        say(f"\ntook     {in_words(result['stages'], result.get('resumed_at'))}")
    say(f"encoder  {folder.encoder_file}   (contune.load_encoder({str(folder.path)!r}))")
    if folder.report_file.exists():
        say(f"report   {folder.report_file}")


def _train_seeds(
    recipe: str, overrides: list[str], seeds: list[int], parallel: int | None, out: Path | None, debug: bool
) -> None:
    from contune.console import say, show_table
    from contune.run import seed_folder
    from contune.train.many import Job, run_many
    from contune.train.summary import COLUMNS, summary

    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UserError("--seeds starts processes of its own; leave torchrun out, or give each seed with run.seed")
    if any(word.startswith("run.seed=") for word in overrides):
        raise UserError("--seeds and run.seed both name seeds; leave one of them out")
    jobs = []
    for seed in seeds:
        own = overrides if seed == config_of(recipe, overrides).run.seed else [*overrides, f"run.seed={seed}"]
        folder = seed_folder(out, seed) if out is not None else Path("runs") / run_name(recipe, own)
        jobs.append(Job(config_of(recipe, own), folder, f"seed {seed}"))
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
