"""`contune train`, `eval`, `recipes` and `settings`."""

import sys
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Exit, Option

from contune.cli import Arguments, Overrides, Parallel, Run, Seeds, app, parse_choice, parse_seeds, refuse_torchrun
from contune.console import emit, printable, say, show_table
from contune.errors import UserError, unknown
from contune.settings import split_assignment
from contune.training.signals import stoppable


@app.command(rich_help_panel="Train")
def train(
    arguments: Arguments = None,
    out: Annotated[
        Path | None,
        Option(help="The run folder, or the parent of one run per seed.", show_default="runs/RECIPE[-HASH]"),
    ] = None,
    seeds: Seeds = None,
    parallel: Parallel = None,
    extends: Annotated[
        Path | None, Option("--continue", metavar="RUN", help="Train this run further, to a larger optim.epochs.")
    ] = None,
) -> None:
    """Train an encoder, evaluate it and write a report.

    Repeat the command to resume a stopped run. Ctrl-C and SIGTERM save a checkpoint first and exit with codes 130
    and 75.

    Examples:

    `contune train images data.path=photos/ optim.epochs=100`

    `contune train digits --seeds 3`

    `contune train --continue runs/photos optim.epochs=200`
    """
    if extends is not None and seeds:
        raise UserError("--continue trains one run further; leave out --seeds")
    if parallel is not None and not seeds:
        raise UserError(f"--parallel {parallel} needs --seeds, such as --seeds 3")
    with stoppable():  # from here on, because importing the libraries takes seconds
        if seeds:
            _train_seeds(arguments or [], parse_seeds(seeds), parallel, out)
            return
        from contune import api
        from contune.run import RunFolder

        if extends is None:
            recipe, overrides, *_ = parse_choice(arguments)
            settings: dict[str, Any] = dict(map(split_assignment, overrides))
            run = api.train(recipe=recipe, out=out, **settings)
        else:
            run = api.Run(extends, {}).extend(out, **dict(map(split_assignment, arguments or [])))
        folder, result = RunFolder(run.folder), run.result
        if not result:
            return  # not the main process
        say()
        _show_measures(result)
        stages = result["stages"]
        since = f" since step {result['resumed_at']:,}" if "resumed_at" in result else ""
        each = ", ".join(f"{stage} {seconds:.0f} s" for stage, seconds in stages.items())
        say(f"\ntook     {sum(stages.values()):.0f} s{since}: {each}")
        say(f"encoder  {folder.encoder_file}   (contune.load_encoder({str(folder.path)!r}))")
        if folder.report_file.exists():
            say(f"report   {folder.report_file}")
        for warning in result.get("warnings", ()):
            say(f"\nwarning: {warning}")


def _train_seeds(arguments: list[str], seeds: list[int], parallel: int | None, out: Path | None) -> None:
    refuse_torchrun("--seeds")
    if any(word.startswith("run.seed=") for word in arguments):
        raise UserError("--seeds and run.seed both set the seed; leave one of them out")
    _, _, config, name = parse_choice(arguments)
    from contune.eval.measures import KNN, LINEAR, MEASURES, judged_by
    from contune.report import train_and_report
    from contune.report.statistics import FEW, Spread
    from contune.training.many import Job, run_many

    jobs = []
    for seed in seeds:
        _, _, own, own_name = parse_choice([*arguments, f"run.seed={seed}"])
        default = Path("runs") / (name if seed == config.run.seed else own_name)
        jobs.append(Job(own, default if out is None else out / f"seed{seed}", f"seed {seed}", train_and_report))
    results, keys = run_many(jobs, parallel), (LINEAR, KNN)
    finished = [result for result in results if "error" not in result]
    rows = []
    for job, result in zip(jobs, results, strict=True):
        if "error" not in result:
            found = [judged_by(result, key) for key in keys]
            rows.append((job.title, *(f"{score['top1']:.2f}" if score else "" for score in found), str(job.folder)))
            continue
        emit(f"contune: {job.title}: {printable(result['error'])}", sys.stderr)
        if "--debug" in sys.argv:
            emit(result["details"], sys.stderr)
    if len(finished) > 1:
        columns = [[score["top1"] for result in finished if (score := judged_by(result, key))] for key in keys]
        title = "mean ± 95 % interval" if len(finished) >= FEW else "mean"
        rows.append((title, *(str(Spread.of(column)) if column else "" for column in columns), ""))
    scores = [score for result in finished if (score := judged_by(result, LINEAR))]
    probe = " or ".join(dict.fromkeys(MEASURES[score["name"]].short_title for score in scores)) or "probe"
    show_table(("run", f"{probe} %", "kNN %", "folder"), rows, numbers=(f"{probe} %", "kNN %"))
    if len(finished) < len(jobs):
        raise Exit(2)


@app.command(name="eval", rich_help_panel="Train")
def evaluate(run: Run, overrides: Overrides = None) -> None:
    """Evaluate a trained encoder again, on other data or with another protocol.

    Example:

    `contune eval runs/digits eval.linear=paper`
    """
    from contune.run import RunFolder
    from contune.training.session import evaluate_run

    _show_measures(evaluate_run(RunFolder(run), overrides or []))


def _show_measures(result: dict[str, Any]) -> None:
    """Tables of accuracies and retrieval; below, the protocols, which raw pixels and the untrained encoder share."""
    from contune.eval.measures import MAP, MEASURES, PIXELS, RETRIEVAL, START, columns_of_imbalance

    measures, retrieved = result["measures"], result.get("retrieval")
    if not measures:
        say("not evaluated: no labels or no test images (a class needs two images); `contune search` needs neither")
        return
    more = columns_of_imbalance(measures)
    keys = {MAP: "mAP %", "top1": "top-1 %", "top5": "top-5 %"} | {key: f"{key} %" for key in more}
    keys = {key: title for key, title in keys.items() if any(each.get(key) is not None for each in measures)}
    rows, own = {}, {}
    for measure in measures:
        title = MEASURES[measure["name"]].short_title
        rows[title] = measure
        if not measure["name"].startswith((PIXELS, START)):
            own[title] = measure["protocol"]
    _show_values(f"accuracy ({result['split']})", keys, rows)
    if more:
        own["balanced"] = "the mean over classes; many, medium, few: over 100, 20 to 100, below 20 images"
    if retrieved:
        own["retrieval"] = retrieved[0]["protocol"]
        say()
        titles = {key: measure.short_title for key, measure in RETRIEVAL.items()}
        about = "{num_classes:,} {name} classes, {num_images:,} images"
        _show_values("retrieval", titles, {about.format(**one): one["values"] for one in retrieved})
    say("".join(f"\n{title}: {protocol}" for title, protocol in own.items()))


def _show_values(title: str, columns: dict[str, str], rows: dict[str, dict[str, Any]]) -> None:
    """A table with the titles of its columns by key, and rows of values by key."""
    table = [
        [name, *("" if row.get(key) is None else f"{row[key]:.2f}" for key in columns)] for name, row in rows.items()
    ]
    show_table((title, *columns.values()), table, numbers=tuple(columns.values()))


@app.command(rich_help_panel="Train")
def recipes(
    name: Annotated[
        str | None, Argument(help="A recipe, or a dataset to list the recipes for.", show_default="all recipes")
    ] = None,
) -> None:
    """List the recipes, or print the settings of one.

    Examples:

    `contune recipes cifar100`

    `contune recipes images`
    """
    from contune.config import Config
    from contune.recipes import RECIPES, by_data, summary
    from contune.settings import as_text

    groups = by_data()
    rows: list[tuple[str, ...]] = []
    if name in RECIPES:
        usual, values = Config().flat(), RECIPES[name]().flat()
        say(f"{summary(RECIPES[name])}\n")
        for key, value in values.items():
            rows.append((key, as_text(value), as_text(usual[key]) if usual.get(key, value) != value else ""))
        show_table(("setting", "value", "default, if different"), rows)
    elif name is None or name in groups:
        for names in groups.values() if name is None else [groups[name]]:
            rows += [*([("", "")] if rows else []), *((recipe, summary(RECIPES[recipe])) for recipe in names)]
        show_table(("recipe", "what it trains"), rows)
    else:
        raise unknown("recipe or dataset", name, {*RECIPES, *groups})
    say("\ntrain one: contune train RECIPE [KEY=VALUE ...]      check it first: contune doctor RECIPE")


@app.command(rich_help_panel="Train")
def settings(
    part: Annotated[str, Argument(help="List only keys that contain this.", show_default="all")] = "",
) -> None:
    """List every setting with its default, the values it takes, and what it does.

    Examples:

    `contune settings optim`

    `contune settings warmup`
    """
    from contune.config import described

    found = described(part)
    if not found:
        raise unknown("setting", part, {key for key, *_ in described()})
    for (key, kind, default, text), methods in found.items():
        of_methods = f", for {', '.join(methods)}" if methods else ""
        say(f"{key}={default}  ({kind}{of_methods})\n    {' '.join(text.split())}")
