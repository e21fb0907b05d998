"""`contune analyze`."""

from pathlib import Path
from typing import Annotated

import typer

from contune.cli.app import Debug, app
from contune.cli.words import Overrides, values_in


@app.command()
def analyze(
    run: Annotated[Path, typer.Argument(help="A run folder.", show_default=False)],
    overrides: Overrides = None,
    k1: Annotated[str, typer.Option(help="Values of k1 to compare, with commas between.")] = "",
    k2: Annotated[str, typer.Option(help="Values of k2 to compare, with commas between.")] = "",
    batches: Annotated[int, typer.Option(help="Batches of training data to take.")] = 8,
    out: Annotated[Path | None, typer.Option(help="The folder to write to; the run's if not given.")] = None,
    debug: Debug = False,
) -> None:
    """Measure how strongly positives pull and negatives push: the paper's gradient responses, TCL beside SupCon.

    Takes runs of tcl, supcon and simclr. On the embeddings of any of them it asks what TCL's responses are at
    method.k1 and method.k2, and at other values of them. Writes gradients.json, .png, .svg and .html, and with a row
    for each anchor gradients-anchors.parquet.

    Examples: `contune analyze runs/digits` · `contune analyze runs/digits method.k1=4000 method.k2=3` ·
    `contune analyze runs/digits --k1 0,500,5000 --batches 20 --out analysis/`
    """
    from contune.analysis.gradients.page import TABLE, rows
    from contune.analysis.gradients.sweep import K1_VALUES, K2_VALUES
    from contune.analysis.gradients.written import ANCHORS_FILE, check_place, write_analysis
    from contune.analyze import analyze_run
    from contune.console import say, show_table
    from contune.run import RunFolder

    check_place(out or run, run)
    found = analyze_run(
        RunFolder(run),
        overrides or [],
        k1_values=values_in(k1) or K1_VALUES,
        k2_values=values_in(k2) or K2_VALUES,
        num_batches=batches,
    )
    folder = write_analysis(out or run, found)
    show_table(TABLE, rows(found.numbers), numbers=TABLE[1:])
    say(f"\nfigures  {folder}/gradients.png, gradients-anchors.png, both also .svg")
    say(f"anchors  {folder}/{ANCHORS_FILE}, {found.anchors.num_rows:,} rows")
    say(f"page     {folder}/gradients.html")
