"""`contune experiment`."""

import os
from pathlib import Path
from typing import Annotated

import typer

from contune.cli.app import Debug, app
from contune.cli.words import seeds_in
from contune.errors import UserError


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
    _experiment(words[0], words[1:], seeds_in(seeds), parallel, out, draw)


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
