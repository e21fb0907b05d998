"""The application that commands are added to, and how it starts."""

import os
import sys
import time
from typing import Annotated

import typer

from contune.errors import UserError
from contune.train.signals import RESUME_CODE, Stopped

app = typer.Typer(
    help="Tuned contrastive learning: train, measure and take home an image encoder.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    add_completion=False,
)

SECONDS_FOR_PROCESS_0 = 3.0

Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


def main() -> None:
    """Runs a command; bad input ends in one sentence and exit code 2, SIGTERM in one and a code that says "again"."""
    rank = int(os.environ.get("RANK", "0"))
    try:
        app()
    except UserError as error:
        if "--debug" in sys.argv:
            raise
        if rank > 0:  # if process 0 knows it too, it says it, and the launcher ends this one before the time is over
            time.sleep(SECONDS_FOR_PROCESS_0)
        print(f"contune: {f'process {rank}: ' if rank else ''}{error}", file=sys.stderr)
        sys.exit(2)
    except Stopped:
        if rank == 0:
            print("contune: stopped by SIGTERM; the same command goes on from the last checkpoint", file=sys.stderr)
        sys.exit(RESUME_CODE)


@app.callback(invoke_without_command=True)
def options(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        from contune import __version__

        print(f"contune {__version__}")
        raise typer.Exit
