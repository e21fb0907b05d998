"""The list of recipes, with what is in each."""

from contune.config import Config
from contune.recipes import RECIPES, by_data, summary

INTRODUCTION = """---
hide: [toc]
---

# Recipes

A recipe is a complete set of [settings](settings.md) by name. `contune train RECIPE` starts one, `KEY=VALUE` changes
some of it, and `contune doctor RECIPE` looks at it first. Accuracies that "the paper has" or solo-learn has are theirs;
what ours measured is under [results](../runs.md).
"""
COLUMNS = ("recipe", "what it trains", "encoder", "epochs", "images × views", "optimizer, lr")


def recipes_page() -> str:
    parts = [INTRODUCTION]
    for data, names in by_data().items():
        rows = [_row(name) for name in names]
        lines = [COLUMNS, ("---",) * len(COLUMNS), *rows]
        parts.append(f"## {data}\n\n" + "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n")
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
