"""Doing an experiment: what is missing is run, what is there is drawn."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib

from contune.analysis.page import escape, page
from contune.analysis.svg import inline_svg, svg_text
from contune.experiments import dots
from contune.experiments.comparison import values_of
from contune.experiments.experiment import Experiment
from contune.experiments.gather import from_folder
from contune.experiments.outcome import Outcome
from contune.experiments.plan import jobs
from contune.experiments.table import Table, to_html, to_latex, to_markdown
from contune.train.many import run_many

PAGE_COLOURS = {
    dots.INK: "var(--ink)",
    dots.MUTED: "var(--muted)",
    dots.LINE: "var(--line)",
    dots.LINEAR: "var(--accent)",
    dots.KNN: "var(--warm)",
}
DPI = 160


def run(
    experiment: Experiment, *, overrides: Sequence[str], seeds: Sequence[int], folder: Path, parallel: int | None = None
) -> list[Outcome]:
    """Runs what has not ended yet, then draws; where it is stopped, what there is. Called again, it goes on."""
    todo = jobs(experiment.rows, [*experiment.overrides, *overrides], seeds, folder)
    try:
        results = run_many(todo, parallel)
    except KeyboardInterrupt:
        found(experiment, overrides=overrides, seeds=seeds, folder=folder)
        raise
    errors = {job.folder: result["error"] for job, result in zip(todo, results, strict=True) if "error" in result}
    return found(experiment, overrides=overrides, seeds=seeds, folder=folder, errors=errors)


def found(
    experiment: Experiment,
    *,
    overrides: Sequence[str],
    seeds: Sequence[int],
    folder: Path,
    errors: Mapping[Path, str] | None = None,
) -> list[Outcome]:
    """Draws what lies in a folder, and runs nothing."""
    outcomes = from_folder(experiment.rows, [*experiment.overrides, *overrides], seeds, folder, errors or {})
    draw(experiment, outcomes, folder)
    return outcomes


def draw(experiment: Experiment, outcomes: Sequence[Outcome], folder: Path) -> None:
    """table.md, table.tex, table.html, figure.png and figure.svg."""
    folder.mkdir(parents=True, exist_ok=True)
    table = experiment.table(outcomes)
    figure = experiment.figure(outcomes)
    with matplotlib.rc_context(dots.STYLE):
        figure.savefig(folder / "figure.png", dpi=DPI)
        svg = svg_text(figure, transparent=False)
        untitled = svg_text(experiment.figure(outcomes, titled=False))  # the page has the title already
    texts = {
        "figure.svg": svg,
        "table.md": f"# {experiment.title}\n\n{to_markdown(table)}",
        "table.tex": to_latex(table),
        "table.html": _page(table, outcomes, untitled),
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8", newline="\n")


def _page(table: Table, outcomes: Sequence[Outcome], svg: str) -> str:
    drawing = inline_svg(svg, f"{escape(table.title)}: the table below as a drawing", PAGE_COLOURS)
    results = [result for outcome in outcomes for result in outcome.results]
    facts = [escape(", ".join(values_of(results, key))) for key in ("data", "encoder", "hardware") if results]
    body = f"""<header>
<p class="brand">contune <span>experiment</span></p>
<h1>{escape(table.title)}</h1>
<p class="facts">{" · ".join(facts)}</p>
</header>
<figure class="drawing">{drawing}</figure>
{to_html(table)}"""
    return page(f"{table.title} · contune", body)
