"""Commands to look first: `contune recipes` and `contune doctor`."""

from typing import Annotated

import typer

from contune.cli.app import Debug, app
from contune.cli.words import Arguments, config_of, recipe_and_overrides
from contune.errors import unknown


@app.command()
def recipes(
    data: Annotated[str | None, typer.Argument(help="Only those of this data set.", show_default=False)] = None,
) -> None:
    """List the recipes: complete settings by name.

    Examples: `contune recipes` · `contune recipes cifar100`
    """
    from contune.console import say, show_table
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

    recipe, overrides = recipe_and_overrides(arguments)
    is_bad = False
    for finding in examine(config_of(recipe, overrides)):
        say(f"{finding.mark} {finding.text}")
        is_bad |= finding.is_bad
    if is_bad:
        raise typer.Exit(1)
