"""`contune experiment`."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from contune.cli.app import Debug, app
from contune.cli.words import seeds_in
from contune.errors import UserError

if TYPE_CHECKING:
    from contune.experiments import Experiment
    from contune.experiments.outcome import Outcome


@app.command()
def experiment(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME] [KEY=VALUE]...", help="An experiment and settings for all its runs.", show_default=False
        ),
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option(help="How many, such as 3 for 0, 1 and 2; or which, such as 0,4. If not given 1, of ci 5."),
    ] = None,
    parallel: Annotated[
        int | None, typer.Option(help="Runs at a time; if not given up to 4 on a GPU, 1 on a CPU.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="The folder; if not given runs/experiments/NAME, where settings differ NAME-HASH."),
    ] = None,
    source: Annotated[
        Path | None, typer.Option("--from", help="A folder whose results count as done where their settings agree.")
    ] = None,
    save: Annotated[Path | None, typer.Option(help="A folder to copy the results to, one file a run.")] = None,
    draw: Annotated[bool, typer.Option("--draw", help="Run nothing, draw what there is.")] = False,
    debug: Debug = False,
) -> None:
    """Do a set of runs and draw them together; without a name, list the sets.

    Runs that are done are not repeated: the same command again goes on where it was stopped. Data sets that are not
    on this disk are left out.

    Examples: `contune experiment` · `contune experiment fig-k1-digits` · `contune experiment ssl-digits --seeds 3` ·
    `contune experiment table1 data.path=data/ model.encoder=resnet18` · `contune experiment ci --from results/ --draw`
    """
    from contune.console import say, show_table
    from contune.experiments import EXPERIMENTS, find_experiment
    from contune.recipes import summary

    words = arguments or []
    asked = any((words, draw, *(option is not None for option in (seeds, parallel, out, source, save))))
    if asked and (not words or "=" in words[0]):
        raise UserError("name an experiment first, such as ci-digits; `contune experiment` alone lists them")
    if not words:
        show_table(("experiment", "what it compares"), [(name, summary(make)) for name, make in EXPERIMENTS.items()])
        say("\nstart one: contune experiment NAME [--seeds 3] [KEY=VALUE ...]")
        return
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UserError("an experiment starts processes of its own; leave torchrun out")
    name, overrides = words[0], words[1:]
    found = find_experiment(name)
    chosen = seeds_in(seeds) if seeds is not None else None
    _experiment(found, overrides, chosen, parallel=parallel, out=out, source=source, save=save, draw=draw)


def _experiment(
    plain: "Experiment",
    overrides: list[str],
    seeds: list[int] | None,
    *,
    parallel: int | None,
    out: Path | None,
    source: Path | None,
    save: Path | None,
    draw: bool,
) -> None:
    from contune.console import say
    from contune.experiments import board, saved
    from contune.experiments.gather import known_runs, nearest
    from contune.experiments.plan import folder_name

    found = plain.changed(overrides)
    folder = out or Path("runs") / "experiments" / folder_name(plain.name, overrides)
    results = saved.results_for(found, source) if source is not None else []
    known = known_runs(found.rows, results, found.overrides)
    if source is not None and draw and not known:
        others = nearest(found.rows, results, found.overrides)
        differing = f", the nearest differs in {', '.join(others)}" if others else ""
        raise UserError(
            f"{source} has no result with the settings of {plain.name}{differing}; add the KEY=VALUE that its runs had"
        )
    if seeds is None:
        seen = {int(result["seed"]) for result in known.values()} if draw else set()
        seeds = sorted(seen) or list(range(found.num_seeds))
    try:
        if draw:
            outcomes = board.redraw(found, seeds=seeds, folder=folder, known=known)
        else:
            outcomes = board.run(found, seeds=seeds, folder=folder, parallel=parallel, known=known)
    except KeyboardInterrupt:
        say(f"\nstopped; the same command goes on, and what is done is drawn in {folder}")
        raise typer.Exit(130) from None
    _show(found, outcomes, folder)
    if save is not None:
        num = saved.save(plain.name, overrides, outcomes, save, but=known)
        say(f"results  {save}: {num} new")
    if any(outcome.failures for outcome in outcomes):
        raise typer.Exit(2)


def _show(found: "Experiment", outcomes: "list[Outcome]", folder: Path) -> None:
    from contune.console import say, show_table

    table = found.table(outcomes)
    show_table(table.columns, [[cell.text for cell in row] for row in table.rows], numbers=table.numbers)
    left_out = [note for note in table.notes if note.startswith("Left out: ")]
    of_runs = [sentence for outcome in outcomes for sentence in outcome.sentences()]
    say("".join(f"\n{sentence}" for sentence in (*table.findings, *left_out, *of_runs)))
    say(f"table    {folder}/table.md, table.tex, table.html\nfigure   {folder}/figure.png, figure.svg")
