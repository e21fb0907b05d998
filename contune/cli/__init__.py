"""The command line: parse, call, print.

Commands import what they call inside their bodies, so that `contune --help` does not wait for torch.
"""

import os
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from contune.errors import UserError
from contune.train.signals import RESUME_CODE, Stopped

if TYPE_CHECKING:
    from contune.config import Config

app = typer.Typer(
    help="Tuned contrastive learning: train, evaluate and export an image encoder.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    add_completion=False,
)

TRAIN, USE, UNDERSTAND, REPRODUCE = "Train", "Use", "Understand", "Reproduce"
"""Help panels."""

Arguments = Annotated[
    list[str] | None,
    typer.Argument(metavar="[RECIPE] [KEY=VALUE]...", help="A recipe and settings to change.", show_default=False),
]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY=VALUE]...", help="Settings to change.", show_default=False),
]
RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.", show_default=False)]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]

DEFAULT_RECIPE = "digits"
MAX_SEEDS = 1000
SECONDS_FOR_RANK_0 = 3.0


def main() -> None:
    """Run a command. Bad input prints one sentence and exits with code 2, a bug with code 1, SIGTERM with code 75."""
    rank = int(os.environ.get("RANK", "0"))
    who = f"process {rank}: " if rank else ""
    try:
        app()
    except UserError as error:
        if "--debug" in sys.argv:
            raise
        if rank > 0:  # rank 0 usually prints the same sentence, and the launcher then ends this process
            time.sleep(SECONDS_FOR_RANK_0)
        print(f"contune: {who}{error}", file=sys.stderr)
        sys.exit(2)
    except Stopped:
        if rank == 0:
            print("contune: stopped by SIGTERM; repeat the command to resume", file=sys.stderr)
        sys.exit(RESUME_CODE)
    except SystemExit as end:
        if end.code == 130 and rank == 0:  # typer turns Ctrl-C into this code
            print("contune: stopped; repeat the command to resume", file=sys.stderr)
        raise
    except Exception as error:
        if "--debug" in sys.argv:
            raise
        with tempfile.NamedTemporaryFile("w", prefix="contune-", suffix=".txt", delete=False) as file:
            file.write(f"{' '.join(sys.argv)}\n\n{traceback.format_exc()}")
        print(f"contune: {who}unexpected {type(error).__name__}: {error}", file=sys.stderr)
        print(f"contune: {who}please report it with the traceback in {file.name}", file=sys.stderr)
        sys.exit(1)


@app.callback(invoke_without_command=True)
def options(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        from contune import __version__

        print(f"contune {__version__}")
        raise typer.Exit


def recipe_and_overrides(arguments: list[str] | None) -> tuple[str, list[str]]:
    """The recipe, which is the first word unless that is a KEY=VALUE, and the other words."""
    words = arguments or []
    if words and "=" not in words[0]:
        return words[0], words[1:]
    return DEFAULT_RECIPE, words


def config_of(recipe: str, overrides: list[str]) -> "Config":
    from contune.recipes import find_recipe

    return find_recipe(recipe)().override(overrides)


def run_name(recipe: str, overrides: list[str]) -> str:
    """The name of the default run folder: the recipe, with a hash of the settings if any differ."""
    return recipe if not overrides else f"{recipe}-{config_of(recipe, overrides).fingerprint()}"


def parse_ints(text: str, example: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise UserError(f"{text!r} is not a list of whole numbers; write for example {example}") from None


def parse_floats(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise UserError(f"{text!r} is not a list of numbers; write for example 0,500,5000") from None


def parse_seeds(text: str) -> list[int]:
    """`3` is a number of seeds, `0,4` or `4,` a list of them."""
    numbers = parse_ints(text, "0,1,2")
    seeds = numbers if "," in text else list(range(min(numbers[0], MAX_SEEDS + 1)))
    if not seeds or min(seeds) < 0 or len(seeds) > MAX_SEEDS:
        raise UserError(f"--seeds {text}: write a number from 1 to {MAX_SEEDS}, or a list of seeds such as 0,4")
    return seeds


def refuse_torchrun(command: str) -> None:
    """For commands that start their own processes."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UserError(f"{command} starts its own processes; run it without torchrun")


from contune.cli import train, use, understand, reproduce  # noqa: E402, F401, I001  # adds the commands, in the order of --help
