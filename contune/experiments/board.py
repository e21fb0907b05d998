"""Doing an experiment: what is missing is run, what is there is drawn."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib

from contune.analysis.page import escape, page
from contune.errors import UserError
from contune.experiments import place
from contune.experiments.availability import absent_data
from contune.experiments.experiment import Experiment
from contune.experiments.facts import values_of
from contune.experiments.gather import Known, from_folder
from contune.experiments.outcome import Outcome
from contune.experiments.plan import jobs
from contune.experiments.style import STYLE
from contune.experiments.table import Table, to_html, to_latex, to_markdown
from contune.files import whole_file, write_whole
from contune.report.style import PAGE_COLORS, inline_svg, svg_text
from contune.run import RunFolder
from contune.train.many import Job, check_parallel, run_many
from contune.train.signals import Stopped

DPI = 160


def run(
    experiment: Experiment,
    *,
    seeds: Sequence[int],
    folder: Path,
    parallel: int | None = None,
    known: Known | None = None,
) -> list[Outcome]:
    """Runs what has not ended yet, then draws; where it is stopped, what there is. Called again, it goes on.

    Rows whose data set is not on this disk are left out, and said so; if that is all of them, it is an error.
    """
    todo = [
        job
        for job in jobs(experiment.rows, experiment.overrides, seeds, folder)
        if job.folder.name not in (known or {})
    ]
    absent = absent_data(job.config for job in todo if not _has_ended(job))
    able = [job for job in todo if job.config.data.name not in absent or _has_ended(job)]
    if absent and not able and not known:
        raise UserError(next(iter(absent.values())))
    check_parallel(parallel)  # before there is a folder
    place.check(folder, experiment)
    place.mark(folder, experiment.name, list(experiment.given))

    def drawn(errors: Mapping[Path, str]) -> list[Outcome]:
        rows, overrides = experiment.rows, experiment.overrides
        outcomes = from_folder(rows, overrides, seeds, folder, errors=errors, known=known, absent=absent)
        draw(experiment, outcomes, folder)
        return outcomes

    try:
        results = run_many(able, parallel)
    except (KeyboardInterrupt, Stopped):
        drawn({})
        raise
    return drawn({job.folder: result["error"] for job, result in zip(able, results, strict=True) if "error" in result})


def _has_ended(job: Job) -> bool:
    return RunFolder(job.folder).result_file.exists()


def redraw(experiment: Experiment, *, seeds: Sequence[int], folder: Path, known: Known | None = None) -> list[Outcome]:
    """Draws what lies in a folder, and what is known from elsewhere, and runs nothing. Nothing at all is an error."""
    place.check(folder, experiment)
    outcomes = from_folder(experiment.rows, experiment.overrides, seeds, folder, known=known)
    if not any(outcome.results for outcome in outcomes):
        raise UserError(f"{folder} has no finished run of {experiment.name} to draw; leave out --draw to do them")
    place.mark(folder, experiment.name, list(experiment.given))
    draw(experiment, outcomes, folder)
    return outcomes


def draw(experiment: Experiment, outcomes: Sequence[Outcome], folder: Path) -> None:
    """table.md, table.tex, table.html, figure.png and figure.svg."""
    table = experiment.table(outcomes)
    figure = experiment.figure(outcomes)
    with matplotlib.rc_context(STYLE):
        with whole_file(folder / "figure.png") as part:
            figure.savefig(part, format="png", dpi=DPI)
        svg = svg_text(figure, transparent=False)
        untitled = svg_text(experiment.figure(outcomes, titled=False))  # the page has the title already
    texts = {
        "figure.svg": svg,
        "table.md": f"# {experiment.title}\n\n{to_markdown(table)}",
        "table.tex": to_latex(table),
        "table.html": _page(table, outcomes, untitled),
    }
    for name, text in texts.items():
        write_whole(folder / name, text)


def _page(table: Table, outcomes: Sequence[Outcome], svg: str) -> str:
    drawing = inline_svg(svg, f"{escape(table.title)}: the table below as a drawing", PAGE_COLORS)
    results = [result for outcome in outcomes for result in outcome.results]
    facts = [escape(", ".join(values_of(results, key))) for key in ("data", "encoder", "hardware") if results]
    body = f"""<header>
<p class="brand">contune <span>experiment</span></p>
<h1>{escape(table.title)}</h1>
<p class="facts">{" · ".join(facts)}</p>
</header>
<figure class="drawing">{drawing}</figure>
{to_html(table)}"""
    return page("experiment", f"{table.title} · contune", body)
