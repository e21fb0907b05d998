"""`contune check`, `doctor`, `analyze`, `report`, `tune` and `experiment`: understand and reproduce."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from typer import Argument, Exit, Option

from contune.cli import Arguments, Overrides, Parallel, Run, Seeds, app, parse_choice, parse_seeds, refuse_torchrun
from contune.cli.use import MAX_ROWS, LabelColumn, Workers
from contune.console import Finding, say, show_table
from contune.errors import UserError
from contune.settings import parse


@app.command(rich_help_panel="Understand")
def check(
    path: Annotated[str, Argument(metavar="PATH", help="A folder, CSV or parquet.", show_default=False)],
    out: Annotated[Path | None, Option(help="A JSON file for everything that was found.")] = None,
    label_column: LabelColumn = None,
    workers: Workers = None,
) -> None:
    """Check your images: broken files, copies across splits, sizes, classes.

    Exit code 1 means that something is wrong.

    Example:

    `contune check photos/ --out check.json`
    """
    from contune.check import COLUMNS, findings
    from contune.check import check as check_images
    from contune.files import check_like, check_out, write_atomic

    if out is not None:
        check_out(out, path, endings=[".json"])
        check_like(out, '"findings"', '"left_alone"')
    found = check_images(path, label_column=label_column, workers=workers)
    broken = [broken for split in found.splits for broken in split.broken]
    show_table(COLUMNS, [split.table_row for split in found.splits], numbers=("images", "broken", "classes"))
    if broken:
        say()
        show_table(("broken", "what is wrong"), broken[:MAX_ROWS])
        if len(broken) > MAX_ROWS:
            say(f"and {len(broken) - MAX_ROWS:,} more{'' if out else '; --out check.json lists them all'}")
    if out is not None:
        write_atomic(out, found.to_json())
        say(f"\nreport   {out}")
    say()
    _say_findings(findings(found))


@app.command(rich_help_panel="Understand")
def doctor(arguments: Arguments = None) -> None:
    """Check machine, data and settings before a run, and suggest changes.

    ✓ is a check that passed, ! a suggestion, ✗ an error. Exit code 1 means that the run would fail.

    Example:

    `contune doctor cifar100-tcl data.path=data/`
    """
    from contune.doctor import examine

    _say_findings(examine(parse_choice(arguments)[2]))


def _say_findings(findings: Iterable[Finding]) -> None:
    is_bad = False
    for finding in findings:
        say(f"{finding.mark} {finding.text}")
        is_bad |= finding.mark == "✗"
    if is_bad:
        raise Exit(1)


@app.command(rich_help_panel="Understand")
def analyze(
    run: Run,
    overrides: Overrides = None,
    k1: Annotated[str, Option(help="Values of k1 to compare, separated by commas.")] = "",
    k2: Annotated[str, Option(help="Values of k2 to compare, separated by commas.")] = "",
    batches: Annotated[int, Option(help="Batches of training data to use.")] = 8,
    out: Annotated[Path | None, Option(help="The folder to write to.", show_default="the run's")] = None,
) -> None:
    """Plot how strongly positives pull and negatives push, for TCL and SupCon.

    Works for runs of tcl, supcon and simclr. Writes gradients.json, gradients.html and figures.

    Example:

    `contune analyze runs/digits method.k1=4000 method.k2=1 --k2 1,2,3`
    """
    from contune import gradients
    from contune.files import check_new_folder
    from contune.run import RunFolder

    folder = out or run
    if out is not None and not (out / gradients.NUMBERS_FILE).exists():
        check_new_folder(out)
    found = gradients.analyze_run(
        RunFolder(run),
        overrides or [],
        k1_values=parse(k1, tuple[float, ...], "--k1") or gradients.K1_VALUES,
        k2_values=parse(k2, tuple[float, ...], "--k2") or gradients.K2_VALUES,
        num_batches=batches,
    )
    gradients.write_analysis(folder, found)
    say(f"{gradients.headline(found)}\n")
    show_table(gradients.COLUMNS, gradients.rows(found), numbers=gradients.COLUMNS[1:])
    say(f"\nfigure   {folder}/gradients.png, also .svg")
    say(f"page     {folder}/gradients.html")


@app.command(rich_help_panel="Understand")
def report(
    runs: Annotated[list[Path], Argument(help="Run folders.", show_default=False, metavar="RUN...")],
    out: Annotated[
        Path | None, Option(help="The HTML file to write.", show_default="RUN/report.html or comparison.html")
    ] = None,
) -> None:
    """Write the report of a run again, or one page that compares several runs.

    Runs that differ only in their seed are shown as means with 95 % confidence intervals. A folder that `train --seeds
    --out` or `experiment` made stands for all runs in it.

    Example:

    `contune report runs/tcl runs/supcon --out comparison.html`
    """
    from contune.report.compare import accuracy_rows, verdict, write_pages
    from contune.run import RunFolder

    path, groups = write_pages([RunFolder(run) for run in runs], out)
    if groups:
        heads, rows = accuracy_rows(groups)
        show_table(heads, rows, numbers=heads[1:])
        say(f"\n{verdict(groups)}\n")
    say(f"report   {path}")


@app.command(rich_help_panel="Train")
def tune(
    arguments: Arguments = None,
    how: Annotated[str, Option(help="`search`: with Optuna; `paper`: the paper's procedure.")] = "search",
    trials: Annotated[int | None, Option(min=1, help="Total number of trials of a search.", show_default="16")] = None,
    epochs: Annotated[int | None, Option(min=1, help="Epochs of a trial.", show_default="a fifth, at least 10")] = None,
    parallel: Annotated[
        int | None, Option(min=1, help="Number of trials at a time.", show_default="one per core, up to 4")
    ] = None,
    minutes: Annotated[float | None, Option(min=0, help="Start no trial after this many minutes.")] = None,
    k1: Annotated[str | None, Option(help="Lowest and highest k1 of a search.", show_default="1,20000")] = None,
    k2: Annotated[str | None, Option(help="Lowest and highest k2 of a search.", show_default="1,3")] = None,
    r: Annotated[str | None, Option(help="Search the r of automatic k1 and k2 instead, such as 0.03,3.")] = None,
    out: Annotated[
        Path | None, Option(help="The folder of the trials.", show_default="runs/tune/RECIPE[-HASH]-HOW")
    ] = None,
) -> None:
    """Find k1 and k2 of TCL, or r, with short runs on a validation split.

    The test split is never used. The recipe's own values and the paper's defaults are tried first. Repeat the command
    to resume.

    Example:

    `contune tune cifar100-tcl data.path=data/ --trials 24 --epochs 10`
    """
    from contune.tune import COLUMNS, SEARCHED, SUMMARY
    from contune.tune import tune as run_tuning

    refuse_torchrun("contune tune")
    for option, value in (("--trials", trials), ("--k1", k1), ("--k2", k2), ("--r", r)):
        if value is not None and how != "search":
            raise UserError(f"{option} works only with --how search, and this is --how {how}; leave it out")
    if r and (k1 or k2):
        raise UserError("--r searches r instead of k1 and k2; leave out --k1 and --k2")
    recipe, overrides, config, name = parse_choice(arguments)
    length = f"-{epochs}-epochs" if epochs is not None else ""
    folder = out or Path("runs") / "tune" / f"{name}-{how}{length}"
    ends = {"k1": k1, "k2": k2, "r": r}
    asked = {key: parse(text, tuple[float, ...], f"--{key}") for key, text in ends.items() if text}
    tuned = run_tuning(
        recipe,
        overrides,
        config,
        folder,
        how=how,
        epochs=epochs,
        num_trials=trials or 16,
        parallel=parallel,
        minutes=minutes,
        ranges=asked if r else {**SEARCHED, **asked},
    )
    say()
    show_table(COLUMNS, tuned.rows(), numbers=COLUMNS[1:6])
    say("\n" + "\n".join(tuned.lines()))
    say(f"trials   {folder / SUMMARY}")


@app.command(rich_help_panel="Reproduce")
def experiment(
    arguments: Annotated[
        list[str] | None,
        Argument(metavar="[NAME] [KEY=VALUE]...", help="An experiment and settings.", show_default=False),
    ] = None,
    seeds: Seeds = None,
    parallel: Parallel = None,
    out: Annotated[Path | None, Option(help="The folder of runs.", show_default="runs/experiments/NAME[-HASH]")] = None,
    source: Annotated[Path | None, Option("--from", help="A folder of results to reuse, if settings match.")] = None,
    save: Annotated[Path | None, Option(help="Copy the results to this folder, one file per run.")] = None,
    draw: Annotated[bool, Option("--draw", help="Run nothing; draw the results there are.")] = False,
) -> None:
    """Run a set of trainings and draw them together; without a name, list the experiments.

    The name `verdicts` lists the claims of the paper, and what the runs in results/ (or --from) say about each.
    Repeat the command to resume: finished runs are reused. Datasets that are not on this disk are skipped.

    Example:

    `contune experiment ssl-digits --seeds 3`
    """
    from contune.config import spelled_out
    from contune.experiments import EXPERIMENTS, run_experiment, verdicts
    from contune.experiments.plan import read_results

    words = arguments or []
    if not words:
        show_table(("experiment", "what it compares"), [(name, each.summary) for name, each in EXPERIMENTS.items()])
        say("\nstart one: contune experiment NAME [--seeds 3] [KEY=VALUE ...]")
        return
    if words[0] == "verdicts":
        folder = source or Path("results")
        findings = verdicts.find_all(verdicts.read_claims(folder), read_results(folder))
        show_table(verdicts.COLUMNS, verdicts.table(findings))
        say("\n" + "\n".join(verdicts.summary(findings)))
        return
    refuse_torchrun("contune experiment")
    folder, table, outcomes = run_experiment(
        words[0],
        spelled_out(words[1:]),
        seeds=parse_seeds(seeds) if seeds is not None else None,
        out=out,
        source=source,
        parallel=parallel,
        save_to=save,
        draw_only=draw,
    )
    show_table(table.columns, [[cell.strip("*") for cell in row] for row in table.rows], numbers=table.columns[1:])
    problems = [sentence for outcome in outcomes for sentence in outcome.problems()]
    say("".join(f"\n{sentence}" for sentence in problems))
    say(f"table    {folder}/table.md\nfigure   {folder}/figure.png, figure.svg")
    if any(outcome.failures for outcome in outcomes):
        raise Exit(2)
