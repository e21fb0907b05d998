"""`contune tune`."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from contune.cli.app import Debug, app
from contune.cli.words import Arguments, config_of, recipe_and_overrides, run_name, values_in
from contune.errors import UserError

if TYPE_CHECKING:
    from contune.tune.search import Ranges
    from contune.tune.tuning import Budget


@app.command()
def tune(
    arguments: Arguments = None,
    how: Annotated[
        str,
        typer.Option(
            help="`search` by Optuna, `paper`: the paper's procedure, or `advise`: from the gradients of one run. "
            "If not given `search`, without Optuna `paper`.",
            show_default=False,
        ),
    ] = "",
    trials: Annotated[int | None, typer.Option(help="Of a search, in all; 16 if not given.")] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Of a short run; if not given a fifth of the recipe's, 10 at least.")
    ] = None,
    parallel: Annotated[
        int | None, typer.Option(help="Runs at a time; if not given 4 on a GPU, on a CPU one a core and 4 at most.")
    ] = None,
    minutes: Annotated[float | None, typer.Option(help="Begin no more trials after so many.")] = None,
    k1: Annotated[
        str | None, typer.Option(help="Of a search, the lowest and highest k1; 1,20000 if not given.")
    ] = None,
    k2: Annotated[str | None, typer.Option(help="Of a search, the lowest and highest k2; 1,3 if not given.")] = None,
    storage: Annotated[
        str | None, typer.Option(help="Of a search, a database that several hosts share, as a URL.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="The folder; if not given runs/tune/RECIPE-HOW, where settings differ RECIPE-HASH-HOW; "
            "--epochs N adds -N-epochs."
        ),
    ] = None,
    debug: Debug = False,
) -> None:
    """Find k1 and k2 of TCL by short runs on a validation split; the test split is never looked at.

    The recipe's own values and the paper's default are tried first, so what is chosen is not below them there. The
    same command again goes on with what was stopped.

    Examples: `contune tune` · `contune tune cifar100-tcl data.path=data/ --trials 24 --epochs 10` ·
    `contune tune images data.path=photos/ --how advise` ·
    `contune tune cifar100-tcl data.path=data/ --storage postgresql://me@host/studies`
    """
    from contune.tune.search import Ranges
    from contune.tune.tuning import NUM_TRIALS, Budget, default_way

    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UserError("tuning starts processes of its own; leave torchrun out")
    way = how or default_way()
    for option, given in (("--trials", trials), ("--storage", storage), ("--k1", k1), ("--k2", k2)):
        if given is not None and way != "search":
            raise UserError(f"{option} {given} is for --how search, and this is --how {way}; leave it out")
    recipe, overrides = recipe_and_overrides(arguments)
    budget = Budget(
        epochs=epochs, num_trials=NUM_TRIALS if trials is None else trials, parallel=parallel, minutes=minutes
    )
    if not how and way == "paper":
        from contune.console import say

        say("Optuna is not installed, so this is the paper's procedure; `pip install contune[tune]` adds the search")
    given_ranges = {name: values_in(text) for name, text in (("k1", k1), ("k2", k2)) if text is not None}
    _tune(recipe, overrides, way, budget, Ranges(**given_ranges), storage, out)


def _tune(
    recipe: str,
    overrides: list[str],
    how: str,
    budget: "Budget",
    ranges: "Ranges",
    storage: str | None,
    out: Path | None,
) -> None:
    from contune.console import say, show_table
    from contune.tune import written
    from contune.tune.short_run import default_epochs
    from contune.tune.tuning import tune

    config = config_of(recipe, overrides)
    epochs = budget.epochs or default_epochs(config.optim.epochs)
    length = f"-{budget.epochs}-epochs" if budget.epochs is not None else ""
    folder = out or Path("runs") / "tune" / f"{run_name(recipe, overrides)}-{how}{length}"
    try:
        outcome = tune(config, folder, how=how, budget=budget, ranges=ranges, storage=storage)
    except KeyboardInterrupt:
        say(f"\nstopped; the same command goes on with the trials in {folder}")
        raise typer.Exit(130) from None
    written.write(folder, outcome, recipe=recipe, overrides=overrides, how=how, epochs=epochs)
    say()
    show_table(written.COLUMNS, written.rows(outcome), numbers=written.COLUMNS[1:5])
    say()
    if outcome.advice is not None:
        say(f"advised  {outcome.advice}")
    say(written.verdict(outcome, epochs))
    say(f"train    {written.train_command(recipe, overrides, outcome.choice)}")
    say(f"files    {folder / written.JSON}, {folder / written.PICTURE}")
