"""The application that commands are added to, and how it starts."""

import os
import sys
from typing import Annotated

import typer

from contune.errors import UserError

app = typer.Typer(
    help="Tuned contrastive learning: train, measure and take home an image encoder.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    add_completion=False,
)

Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


def main() -> None:
    """Runs a command; bad input ends in one sentence and exit code 2."""
    try:
        app()
    except UserError as error:
        if "--debug" in sys.argv:
            raise
        if os.environ.get("RANK", "0") == "0":  # of several processes one says it
            print(f"contune: {error}", file=sys.stderr)
        sys.exit(2)


@app.callback(invoke_without_command=True)
def options(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        from contune import __version__

        print(f"contune {__version__}")
        raise typer.Exit
