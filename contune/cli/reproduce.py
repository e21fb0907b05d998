"""`contune experiment`: the paper's tables and figures."""

from pathlib import Path
from typing import Annotated

import typer

from contune.cli import REPRODUCE, Debug, app, parse_seeds, refuse_torchrun
from contune.errors import UserError


@app.command(rich_help_panel=REPRODUCE)
def experiment(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME] [KEY=VALUE]...", help="An experiment and settings for all its runs.", show_default=False
        ),
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option(help="Number of seeds, such as 3, or a list such as 0,4.", show_default="1, for ci 5"),
    ] = None,
    parallel: Annotated[
        int | None, typer.Option(help="Runs at a time.", show_default="up to 4 on a GPU, 1 on a CPU")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="The folder.", show_default="runs/experiments/NAME, with a hash if settings differ"),
    ] = None,
    source: Annotated[
        Path | None, typer.Option("--from", help="Reuse results in this folder whose settings agree.")
    ] = None,
    save: Annotated[Path | None, typer.Option(help="Copy the results to this folder, one file per run.")] = None,
    draw: Annotated[bool, typer.Option("--draw", help="Run nothing; draw the results there are.")] = False,
    debug: Debug = False,
) -> None:
    """Run a set of trainings and draw them together; without a name, list the experiments.

    Repeat the command to resume: finished runs are reused. Datasets that are not on this disk are skipped.

    Example: `contune experiment ssl-digits --seeds 3`
    """
    from contune.console import say, show_table
    from contune.experiments import EXPERIMENTS, run_experiment

    words = arguments or []
    has_options = draw or any(option is not None for option in (seeds, parallel, out, source, save))
    if not words and not has_options:
        show_table(("experiment", "what it compares"), [(name, each.summary) for name, each in EXPERIMENTS.items()])
        say("\nstart one: contune experiment NAME [--seeds 3] [KEY=VALUE ...]")
        return
    if not words or "=" in words[0]:
        raise UserError("name an experiment first, such as ci-digits; `contune experiment` alone lists them")
    refuse_torchrun("contune experiment")
    drawn = run_experiment(
        words[0],
        words[1:],
        seeds=parse_seeds(seeds) if seeds is not None else None,
        out=out,
        source=source,
        parallel=parallel,
        save_to=save,
        draw_only=draw,
    )
    table = drawn.table
    show_table(table.columns, [[cell.text for cell in row] for row in table.rows], numbers=table.numbers)
    left_out = [note for note in table.notes if note.startswith("Left out: ")]
    problems = [sentence for outcome in drawn.outcomes for sentence in outcome.problems()]
    say("".join(f"\n{sentence}" for sentence in (*left_out, *problems)))
    say(f"table    {drawn.folder}/table.md\nfigure   {drawn.folder}/figure.png, figure.svg")
    if save is not None:
        say(f"results  {save}: {drawn.num_saved} new")
    if any(outcome.failures for outcome in drawn.outcomes):
        raise typer.Exit(2)
