"""The list of recipes, with what is in each."""

from contune.config import Config
from contune.experiments.tables import markdown_table
from contune.recipes import RECIPES, by_data, summary

INTRODUCTION = """# Recipes

Here you can look up every recipe, a complete set of [settings](settings.md) by name. `contune train RECIPE` runs one,
`KEY=VALUE` changes some settings, and `contune doctor RECIPE` checks it first. Accuracies of the paper or of solo-learn
are theirs; [results](../results.md) has ours.
"""
COLUMNS = ("recipe", "what it trains", "encoder", "epochs", "images × views", "optimizer, lr")


def recipes_page() -> str:
    parts = [INTRODUCTION]
    for data, names in by_data().items():
        parts.append(f"## {data}\n\n{markdown_table(COLUMNS, map(_row, names), COLUMNS[3:5])}\n")
    return "\n".join(parts)


def _row(name: str) -> tuple[str, ...]:
    config: Config = RECIPES[name]()
    optim = config.optim
    return (
        f"`{name}`",
        summary(RECIPES[name]),
        config.model.encoder,
        f"{optim.epochs}",
        f"{optim.batch_images} × {config.augment.views}",
        f"{optim.name}, {optim.lr:g}",
    )
