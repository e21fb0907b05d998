"""What words on the command line mean: lists, recipes, settings."""

from typing import TYPE_CHECKING, Annotated

import typer

from contune.errors import UserError

if TYPE_CHECKING:
    from contune.config import Config

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
DEFAULT_RECIPE = "digits"
MOST_SEEDS = 1000


def numbers_in(text: str, example: str = "256,1024") -> list[int]:
    try:
        return [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise UserError(f"{text!r} is not a list of whole numbers; write for example {example}") from None


def values_in(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise UserError(f"{text!r} is not a list of numbers; write for example 0,500,5000") from None


def seeds_in(text: str) -> list[int]:
    """`3` is how many, `0,4` or `4,` is which."""
    numbers = numbers_in(text, "0,1,2")
    if not numbers or min(numbers) < 0 or text.strip() == "0":
        raise UserError(f"--seeds {text} names no seed; write how many, such as 3, or which, such as 0,4")
    if "," in text:
        return numbers
    if numbers[0] > MOST_SEEDS:
        raise UserError(
            f"--seeds {text} would be {numbers[0]:,} runs of each; write how many, up to {MOST_SEEDS}, "
            f"or which, such as 0,4 or {text.strip()},"
        )
    return list(range(numbers[0]))


def words_in(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def recipe_and_overrides(arguments: list[str] | None) -> tuple[str, list[str]]:
    """The recipe, the first word if it is no KEY=VALUE, and the rest."""
    words = arguments or []
    if words and "=" not in words[0]:
        return words[0], words[1:]
    return DEFAULT_RECIPE, words


def config_of(recipe: str, overrides: list[str]) -> "Config":
    from contune.recipes import find_recipe

    return find_recipe(recipe)().override(overrides)


def run_name(recipe: str, overrides: list[str]) -> str:
    """The recipe's, and where settings differ from it what stands for them all."""
    return recipe if not overrides else f"{recipe}-{config_of(recipe, overrides).fingerprint()}"
