"""`contune report`."""

from pathlib import Path
from typing import Annotated

import typer

from contune.cli.app import Debug, app


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders.", show_default=False, metavar="RUN...")],
    out: Annotated[
        Path | None, typer.Option(help="The page; report.html in the run, or comparison.html here, if not given.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Write the report of a run again, or of several runs one page that compares them.

    Runs that differ only in the seed are taken together: means with 95 % intervals, and paired tests between settings
    over the seeds they share. A run that has not ended is shown with what it has. The folder of `train --seeds` or
    of an experiment stands for its runs.

    Examples: `contune report runs/digits` · `contune report runs/tcl runs/supcon` ·
    `contune report runs/experiments/ci-digits --out ci.html`
    """
    from contune.console import say
    from contune.run import RunFolder
    from contune.train.reports import write_pages

    path = write_pages([RunFolder(run) for run in runs], out)
    say(f"report   {path}")
