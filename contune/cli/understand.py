"""`contune check`, `doctor`, `analyze`, `report` and `tune`: understand data, settings and runs."""

from pathlib import Path
from typing import Annotated

import typer

from contune.cli import (
    UNDERSTAND,
    Arguments,
    Debug,
    Overrides,
    RunArgument,
    app,
    config_of,
    parse_floats,
    recipe_and_overrides,
    refuse_torchrun,
    run_name,
)
from contune.cli.use import MAX_ROWS, LabelColumn, Workers
from contune.errors import UserError


@app.command(rich_help_panel=UNDERSTAND)
def check(
    path: Annotated[str, typer.Argument(metavar="PATH", help="A folder of images, or a parquet.", show_default=False)],
    out: Annotated[Path | None, typer.Option(help="A JSON file for everything that was found.")] = None,
    label_column: LabelColumn = None,
    workers: Workers = None,
    debug: Debug = False,
) -> None:
    """Check your images: broken files, copies across splits, sizes, classes. Exit code 1 means something is wrong.

    Example: `contune check photos/ --out check.json`
    """
    from contune.check import COLUMNS, is_check
    from contune.check import check as check_images
    from contune.console import printable, say, show_table
    from contune.files import check_like, check_out, write_whole

    if out is not None:
        check_out(out, path, ending=".json")
        check_like(out, is_check)
    found = check_images(path, label_column=label_column, workers=workers)
    broken = [broken for split in found.splits for broken in split.broken]
    show_table(COLUMNS, [split.table_row for split in found.splits], numbers=("images", "broken", "classes"))
    if broken:
        say()
        show_table(("broken", "what is wrong"), [(printable(name), printable(why)) for name, why in broken[:MAX_ROWS]])
        if len(broken) > MAX_ROWS:
            say(f"and {len(broken) - MAX_ROWS:,} more{'' if out else '; --out check.json lists them all'}")
    say()
    for finding in found.findings:
        say(f"{finding.mark} {finding.text}")
    if out is not None:
        write_whole(out, found.to_json())
        say(f"\nreport   {out}")
    if any(finding.is_bad for finding in found.findings):
        raise typer.Exit(1)


@app.command(rich_help_panel=UNDERSTAND)
def doctor(arguments: Arguments = None, debug: Debug = False) -> None:
    """Check machine, data and settings before a run, and suggest changes. Exit code 1 means the run would fail.

    Example: `contune doctor cifar100-tcl data.path=data/`
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


@app.command(rich_help_panel=UNDERSTAND)
def analyze(
    run: RunArgument,
    overrides: Overrides = None,
    k1: Annotated[str, typer.Option(help="Values of k1 to compare, separated by commas.")] = "",
    k2: Annotated[str, typer.Option(help="Values of k2 to compare, separated by commas.")] = "",
    batches: Annotated[int, typer.Option(help="Batches of training data to use.")] = 8,
    out: Annotated[Path | None, typer.Option(help="The folder to write to.", show_default="the run's")] = None,
    debug: Debug = False,
) -> None:
    """Measure how strongly positives pull and negatives push: the paper's gradient responses of TCL and SupCon.

    Works for runs of tcl, supcon and simclr. Writes gradients.json, gradients.html and figures.

    Example: `contune analyze runs/digits method.k1=4000 --k2 1,2,3`
    """
    from contune.console import say, show_table
    from contune.gradients.page import TABLE, check_place, rows, write_analysis
    from contune.gradients.responses import K1_VALUES, K2_VALUES, analyze_run
    from contune.run import RunFolder

    folder = out or run
    check_place(folder, run)
    found = analyze_run(
        RunFolder(run),
        overrides or [],
        k1_values=parse_floats(k1) or K1_VALUES,
        k2_values=parse_floats(k2) or K2_VALUES,
        num_batches=batches,
    )
    write_analysis(folder, found)
    show_table(TABLE, rows(found), numbers=TABLE[1:])
    say(f"\nfigure   {folder}/gradients.png, also .svg")
    say(f"page     {folder}/gradients.html")


@app.command(rich_help_panel=UNDERSTAND)
def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders.", show_default=False, metavar="RUN...")],
    out: Annotated[
        Path | None,
        typer.Option(help="The page.", show_default="report.html in the run; comparison.html for several runs"),
    ] = None,
    debug: Debug = False,
) -> None:
    """Write the report of a run again, or one page that compares several runs.

    Runs that differ only in their seed are shown as means with 95 % confidence intervals and paired tests. A folder
    that `train --seeds` or `experiment` made stands for all runs in it.

    Example: `contune report runs/tcl runs/supcon --out comparison.html`
    """
    from contune.console import say
    from contune.report.compare import write_pages
    from contune.run import RunFolder

    path = write_pages([RunFolder(run) for run in runs], out)
    say(f"report   {path}")


@app.command(rich_help_panel=UNDERSTAND)
def tune(
    arguments: Arguments = None,
    how: Annotated[
        str,
        typer.Option(
            help="`search` with Optuna, `paper`: the paper's procedure, `advise`: from the gradients of one run.",
            show_default="search; paper if Optuna is not installed",
        ),
    ] = "",
    trials: Annotated[
        int | None, typer.Option(help="Total number of trials for `--how search`.", show_default="16")
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(help="Epochs of a short run.", show_default="a fifth of the recipe's, at least 10"),
    ] = None,
    parallel: Annotated[
        int | None,
        typer.Option(help="Runs at a time.", show_default="4 on a GPU; on a CPU one per core, up to 4"),
    ] = None,
    minutes: Annotated[float | None, typer.Option(help="Start no trial after this many minutes.")] = None,
    k1: Annotated[
        str | None, typer.Option(help="Lowest and highest k1 for `--how search`.", show_default="1,20000")
    ] = None,
    k2: Annotated[
        str | None, typer.Option(help="Lowest and highest k2 for `--how search`.", show_default="1,3")
    ] = None,
    storage: Annotated[
        str | None, typer.Option(help="URL of a database that several hosts share, for `--how search`.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="The folder.", show_default="runs/tune/RECIPE-HOW, with a hash if settings differ"),
    ] = None,
    debug: Debug = False,
) -> None:
    """Find k1 and k2 of TCL with short runs on a validation split. The test split is never used.

    The recipe's own values and the paper's defaults are tried first. Repeat the command to resume.

    Example: `contune tune cifar100-tcl data.path=data/ --trials 24 --epochs 10`
    """
    from contune.console import say, show_table
    from contune.tune import tuning, written
    from contune.tune.search import Ranges
    from contune.tune.short_run import default_epochs

    refuse_torchrun("contune tune")
    way = how or tuning.default_way()
    for option, value in (("--trials", trials), ("--storage", storage), ("--k1", k1), ("--k2", k2)):
        if value is not None and way != "search":
            raise UserError(f"{option} works only with --how search, and this is --how {way}; leave it out")
    if not how and way == "paper":
        say("Optuna is not installed, so contune uses the paper's procedure; `pip install contune[tune]` adds search")
    recipe, overrides = recipe_and_overrides(arguments)
    config = config_of(recipe, overrides)
    length = f"-{epochs}-epochs" if epochs is not None else ""
    folder = out or Path("runs") / "tune" / f"{run_name(recipe, overrides)}-{way}{length}"
    num_trials = tuning.NUM_TRIALS if trials is None else trials
    budget = tuning.Budget(epochs=epochs, num_trials=num_trials, parallel=parallel, minutes=minutes)
    ranges = Ranges(**{name: parse_floats(text) for name, text in (("k1", k1), ("k2", k2)) if text is not None})
    outcome = tuning.tune(config, folder, how=way, budget=budget, ranges=ranges, storage=storage)
    num_epochs = epochs or default_epochs(config.optim.epochs)
    written.write(folder, outcome, recipe=recipe, overrides=overrides, how=way, epochs=num_epochs)
    say()
    show_table(written.COLUMNS, written.rows(outcome), numbers=written.COLUMNS[1:5])
    say()
    if outcome.advice is not None:
        say(f"advised  {outcome.advice}")
    say(written.verdict(outcome, num_epochs))
    say(f"train    {written.train_command(recipe, overrides, outcome.choice)}")
    say(f"files    {folder / written.JSON}, {folder / written.PICTURE}")
