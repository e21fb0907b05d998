"""`contune train`, `eval` and `recipes`."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from contune.cli import Arguments, Debug, Overrides, Parallel, Run, app, parse_choice, refuse_torchrun
from contune.errors import UserError, unknown
from contune.settings import parse
from contune.train.signals import stoppable


@app.command(rich_help_panel="Train")
def train(
    arguments: Arguments = None,
    out: Annotated[
        Path | None,
        typer.Option(help="The run folder, or the parent of one run per seed.", show_default="runs/RECIPE[-HASH]"),
    ] = None,
    seeds: Annotated[str, typer.Option(help="Train once for each of these seeds, for example 0,1,2.")] = "",
    parallel: Parallel = None,
    debug: Debug = False,
) -> None:
    """Train an encoder, evaluate it and write a report.

    Repeat the command to resume a stopped run. Ctrl-C and SIGTERM save a checkpoint first and exit with codes 130
    and 75.

    Example: `contune train images data.path=photos/ optim.epochs=100 --out runs/photos`
    """
    if parallel is not None and not seeds:
        raise UserError(f"--parallel {parallel} needs --seeds, such as --seeds 0,1,2")
    with stoppable():  # from here on, because importing the libraries takes seconds
        if seeds:
            _train_seeds(arguments or [], parse(seeds, tuple[int, ...], "--seeds"), parallel, out, debug)
            return
        from contune.console import say
        from contune.report import train_and_report
        from contune.run import RunFolder
        from contune.train.session import stages_in_words

        _, _, config, name = parse_choice(arguments)
        folder = RunFolder(out or Path("runs") / name)
        result = train_and_report(config, folder)
        if not result:
            return  # not the main process
        say()
        _show_measures(result)
        if "stages" in result:
            say(f"\ntook     {stages_in_words(result['stages'], result.get('resumed_at'))}")
        say(f"encoder  {folder.encoder_file}   (contune.load_encoder({str(folder.path)!r}))")
        if folder.report_file.exists():
            say(f"report   {folder.report_file}")


def _train_seeds(
    arguments: list[str], seeds: tuple[int, ...], parallel: int | None, out: Path | None, debug: bool
) -> None:
    from contune.console import show_table
    from contune.report import train_and_report
    from contune.run import seed_folder
    from contune.train.many import SUMMARY_COLUMNS, Job, run_many, summary

    refuse_torchrun("--seeds")
    if any(word.startswith("run.seed=") for word in arguments):
        raise UserError("--seeds and run.seed both set the seed; leave one of them out")
    jobs = []
    for seed in seeds:
        _, _, config, name = parse_choice(arguments)
        if seed != config.run.seed:
            _, _, config, name = parse_choice([*arguments, f"run.seed={seed}"])
        folder = seed_folder(out, seed) if out is not None else Path("runs") / name
        jobs.append(Job(config, folder, f"seed {seed}", train_and_report))
    results = run_many(jobs, parallel)
    show_table(SUMMARY_COLUMNS, summary(jobs, results), numbers=SUMMARY_COLUMNS[1:3])
    failed = [(job, result) for job, result in zip(jobs, results, strict=True) if "error" in result]
    for job, result in failed:
        print(f"contune: {job.title}: {result['error']}", file=sys.stderr)
        if debug:
            print(result["details"], file=sys.stderr)
    if failed:
        raise typer.Exit(2)


@app.command(name="eval", rich_help_panel="Train")
def evaluate(run: Run, overrides: Overrides = None, debug: Debug = False) -> None:
    """Evaluate a trained encoder again, on other data or under another protocol.

    Example: `contune eval runs/digits eval.linear=paper`
    """
    from contune.run import RunFolder
    from contune.train.session import evaluate_run

    _show_measures(evaluate_run(RunFolder(run), overrides or []))


def _show_measures(result: dict[str, Any]) -> None:
    """Each accuracy with its protocol."""
    from contune.console import say, show_table
    from contune.eval.measures import MEASURES

    columns = (result["split"], "top-1 %", "top-5 %", "protocol")
    rows = []
    for measure in result["measures"]:
        top1, top5 = f"{measure['top1']:.2f}", "" if measure["top5"] is None else f"{measure['top5']:.2f}"
        rows.append((MEASURES[measure["name"]].short_title, top1, top5, measure["protocol"]))
    if rows:
        show_table(columns, rows, numbers=columns[1:3])
    else:
        say("nothing was evaluated: there are no labels, or no split to evaluate on")


@app.command(rich_help_panel="Train")
def recipes(
    data: Annotated[str | None, typer.Argument(help="List only recipes for this dataset.", show_default=False)] = None,
) -> None:
    """List the recipes: complete settings by name.

    Example: `contune recipes cifar100`
    """
    from contune.console import say, show_table
    from contune.recipes import RECIPES, by_data, summary

    groups = by_data()
    if data is not None and data not in groups:
        raise unknown("data set", data, groups)
    rows: list[tuple[str, str]] = []
    for names in groups.values() if data is None else [groups[data]]:
        rows += [*([("", "")] if rows else []), *((name, summary(RECIPES[name])) for name in names)]
    show_table(("recipe", "what it trains"), rows)
    say("\nstart one: contune train RECIPE [KEY=VALUE ...]      check it first: contune doctor RECIPE")
