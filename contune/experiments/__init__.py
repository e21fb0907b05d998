"""Sets of runs that are drawn together: the paper's tables and figures.

    run_experiment("fig-k1-digits", seeds=[0, 1])                # runs what is missing, then draws
    run_experiment("ci", source=Path("results"), draw_only=True)  # draws what is in results/

`catalogue` lists the experiments, `plan` finds and does their runs, `tables` and `figures` show them.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from contune.errors import UserError
from contune.experiments import plan
from contune.experiments.catalogue import EXPERIMENTS, find_experiment
from contune.experiments.figures import make_figure
from contune.experiments.plan import Experiment, Outcome
from contune.experiments.tables import Table, make_table
from contune.files import write_atomic
from contune.report.style import save_figure
from contune.training.signals import Stopped


def run_experiment(
    name: str,
    changes: Sequence[str] = (),
    *,
    seeds: Sequence[int] | None = None,
    out: Path | None = None,
    source: Path | None = None,
    parallel: int | None = None,
    save_to: Path | None = None,
    draw_only: bool = False,
) -> tuple[Path, Table, list[Outcome]]:
    """Runs what has not finished yet, then draws. If it is stopped, it draws and saves what there is. Repeat to resume.

    Returns the folder with table.md, figure.png and figure.svg, and what they show.
    changes: KEY=VALUE for all runs. source: a folder whose results count as finished if their settings agree.
    save_to: copies new results there, one file per run. draw_only: runs nothing, and shows all seeds that there are,
    with the changes of the experiment.json in `source` if none are given.
    """
    if source is not None and not source.is_dir():
        raise UserError(f"{source} is not a folder; name one that holds result files or runs")
    sources = [] if source is None else [source]
    about = plan.read_about(source) or plan.read_about(source / name) if source is not None else None
    if source is not None and plan.read_about(source) is not None:
        sources.append(source.resolve().parent)  # a saved experiment lacks the runs that its neighbors hold
    if draw_only and not changes and about is not None and about["experiment"] == name:
        changes = about["overrides"]
    experiment = find_experiment(name, changes)
    changed = " ".join(experiment.changes).encode()
    suffix = f"-{hashlib.sha256(changed).hexdigest()[:8]}" if changed else ""
    folder = out or Path("runs") / "experiments" / f"{name}{suffix}"
    errors, stop = dict[str, str](), None
    if not draw_only:
        seeds = range(experiment.num_seeds) if seeds is None else seeds
        known = plan.read_results(*sources, folder)
        try:
            experiment, errors = plan.run_missing(experiment, folder, seeds, known, parallel)
        except (KeyboardInterrupt, Stopped) as error:
            stop = error
    outcomes = plan.collect(experiment, plan.read_results(*sources, folder), seeds=seeds, errors=errors)
    if draw_only:
        outcomes = finished(experiment, outcomes)
        if not any(outcome.results for outcome in outcomes):
            raise UserError(f"{source or folder} has no finished run of {name} with these settings; add its KEY=VALUE")
        plan.claim_folder(folder, experiment)
    table, figure = make_table(experiment, outcomes), make_figure(experiment, outcomes)
    write_atomic(folder / "table.md", f"# {experiment.title}\n\n{table.markdown()}")
    save_figure(figure, folder / "figure")
    if save_to is not None:
        plan.save(experiment, outcomes, save_to, folder)
    if stop is not None:
        raise stop
    return folder, table, outcomes


def finished(experiment: Experiment, outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Those that have something to show. The figures of k1 and k2 need all."""
    return [each for each in outcomes if each.results or each.failures or experiment.layout in ("k1", "k2")]


__all__ = ["EXPERIMENTS", "Experiment", "Outcome", "find_experiment", "run_experiment"]
