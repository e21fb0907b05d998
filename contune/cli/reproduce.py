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
    from contune.experiments import EXPERIMENTS, board, find_experiment, saved
    from contune.experiments.gather import known_runs, nearest
    from contune.experiments.plan import folder_name
    from contune.recipes import summary

    words = arguments or []
    has_options = draw or any(option is not None for option in (seeds, parallel, out, source, save))
    if not words and not has_options:
        show_table(("experiment", "what it compares"), [(name, summary(make)) for name, make in EXPERIMENTS.items()])
        say("\nstart one: contune experiment NAME [--seeds 3] [KEY=VALUE ...]")
        return
    if not words or "=" in words[0]:
        raise UserError("name an experiment first, such as ci-digits; `contune experiment` alone lists them")
    refuse_torchrun("contune experiment")
    name, overrides = words[0], words[1:]
    found = find_experiment(name).changed(overrides)
    chosen = parse_seeds(seeds) if seeds is not None else None
    folder = out or Path("runs") / "experiments" / folder_name(name, overrides)
    results = saved.results_for(found, source) if source is not None else []
    known = known_runs(found.rows, results, found.overrides)
    if source is not None and draw and not known:
        others = nearest(found.rows, results, found.overrides)
        differing = f"; the nearest differs in {', '.join(others)}" if others else ""
        raise UserError(f"{source} has no result with the settings of {name}{differing}; add its runs' KEY=VALUE")
    if chosen is None:
        seen = {int(result["seed"]) for result in known.values()} if draw else set()
        chosen = sorted(seen) or list(range(found.num_seeds))
    if draw:
        outcomes = board.redraw(found, seeds=chosen, folder=folder, known=known)
    else:
        outcomes = board.run(found, seeds=chosen, folder=folder, parallel=parallel, known=known)
    table = found.table(outcomes)
    show_table(table.columns, [[cell.text for cell in row] for row in table.rows], numbers=table.numbers)
    left_out = [note for note in table.notes if note.startswith("Left out: ")]
    of_runs = [sentence for outcome in outcomes for sentence in outcome.sentences()]
    say("".join(f"\n{sentence}" for sentence in (*table.findings, *left_out, *of_runs)))
    say(f"table    {folder}/table.md, table.tex, table.html\nfigure   {folder}/figure.png, figure.svg")
    if save is not None:
        say(f"results  {save}: {saved.save(name, overrides, outcomes, save, but=known)} new")
    if any(outcome.failures for outcome in outcomes):
        raise typer.Exit(2)
