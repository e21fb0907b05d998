"""The command line: parse, call, print.

Commands import what they call inside their bodies, so that `contune --help` does not wait for torch.
"""

import os
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Annotated

from typer import Argument, Exit, Option, Typer

from contune.config import Config, spelled_out
from contune.console import emit, printable
from contune.errors import UserError
from contune.settings import parse
from contune.training.signals import RESUME_CODE, Stopped

app = Typer(
    help="Tuned contrastive learning: train, evaluate and export an image encoder.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    add_completion=False,
)


def _in_full(words: list[str] | None) -> list[str] | None:
    """With full keys. The first word may be a recipe."""
    first = [word for word in (words or [])[:1] if "=" not in word]
    return words and [*first, *spelled_out(words[len(first) :])]


Arguments = Annotated[
    list[str] | None,
    Argument(
        metavar="[RECIPE] [KEY=VALUE]...",
        help="A recipe (list them with `contune recipes`) and settings to change (`contune settings`).",
        show_default="digits",
        callback=_in_full,
    ),
]
Overrides = Annotated[
    list[str] | None,
    Argument(metavar="[KEY=VALUE]...", help="Settings to change.", show_default=False, callback=_in_full),
]
Run = Annotated[Path, Argument(metavar="RUN", help="A run folder.", show_default=False)]
Seeds = Annotated[
    str | None, Option(help="Number of seeds, such as 3, or a list: 0,4.", show_default="the seed of the recipe")
]
Parallel = Annotated[
    int | None, Option(min=1, help="Number of runs at a time.", show_default="up to 4 on a GPU, 1 on a CPU")
]

MAX_SEEDS = 1000


def main() -> None:
    """Run a command. Bad input prints one sentence and exits with code 2, a bug with code 1, SIGTERM with code 75."""
    # Before torch loads: waiting threads spin for microseconds, not milliseconds, and then sleep. Otherwise they burn
    # the time that a busy neighbor leaves. Sleeping at once costs 40 % of a step (benchmarks/results/cpu-busy.json).
    os.environ.setdefault("GOMP_SPINCOUNT", "2000")
    rank, who = 0, ""
    try:
        rank = parse(os.environ.get("RANK", "0"), int, "RANK")
        who = f"process {rank}: " if rank else ""
        app([word for word in sys.argv[1:] if word != "--debug"])  # any command takes it
    except Stopped:
        if rank == 0:
            _complain("stopped by SIGTERM; repeat the command to resume")
        sys.exit(RESUME_CODE)
    except SystemExit as end:
        if end.code == 130 and rank == 0:  # typer turns Ctrl-C into this code
            resumes = {"train", "tune", "experiment"}.intersection(sys.argv)
            _complain(f"stopped{'; repeat the command to resume' if resumes else ''}")
        raise
    except Exception as error:
        if "--debug" in sys.argv:
            raise
        if isinstance(error, UserError | OSError):
            if rank > 0:  # rank 0 usually prints the same sentence, and the launcher then ends this process
                time.sleep(3)
            _complain(f"{who}{error}")
            sys.exit(2)
        with tempfile.NamedTemporaryFile("wb", prefix="contune-", suffix=".txt", delete=False) as file:
            file.write(f"{' '.join(sys.argv)}\n\n{traceback.format_exc()}".encode(errors="backslashreplace"))
        _complain(f"{who}unexpected {type(error).__name__}: {str(error).strip().partition(chr(10))[0][:200]}")
        _complain(f"{who}please report it with the traceback in {file.name}")
        sys.exit(1)


def _complain(text: str) -> None:
    emit(f"contune: {printable(text)}", sys.stderr)


@app.callback(invoke_without_command=True)
def options(
    version: Annotated[bool, Option("--version", help="Print the version.")] = False,
    debug: Annotated[bool, Option("--debug", help="Show the traceback of an error, in any command.")] = False,
) -> None:
    if version:
        from contune import __version__

        print(f"contune {__version__}")
        raise Exit


def parse_choice(arguments: list[str] | None) -> tuple[str, list[str], Config, str]:
    """The recipe, the overrides, their config, and the name of the default folder, from [RECIPE] [KEY=VALUE]...

    The first word is the recipe unless it has a `=`.
    """
    from contune.recipes import configure

    words = arguments or []
    recipe, overrides = (words[0], words[1:]) if words and "=" not in words[0] else ("digits", words)
    return recipe, overrides, *configure(recipe, overrides)


def parse_seeds(text: str) -> list[int]:
    """The seeds of `--seeds 3`, which are 0, 1 and 2, or of a list: `0,4` or `4,`."""
    numbers = parse(text, tuple[int, ...], "--seeds")
    seeds = list(dict.fromkeys(numbers)) if "," in text else list(range(min([*numbers, MAX_SEEDS + 1])))
    if not seeds or min(seeds) < 0 or len(seeds) > MAX_SEEDS:
        raise UserError(f"--seeds {text}: write a number from 1 to {MAX_SEEDS}, or a list of seeds such as 0,4")
    return seeds


def refuse_torchrun(command: str) -> None:
    """For commands that start their own processes."""
    if parse(os.environ.get("WORLD_SIZE", "1"), int, "WORLD_SIZE") > 1:
        raise UserError(f"{command} starts its own processes; run it without torchrun")


from contune.cli import train, use, understand  # noqa: E402, F401, I001  # adds the commands, in the order of --help
