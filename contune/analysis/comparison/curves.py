"""Training curves of all runs, one drawing a metric: a colour and a dash for each group, a line for each seed."""

from collections.abc import Sequence
from math import isfinite
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from contune.analysis.comparison.runs import Group, Run
from contune.analysis.curves import MAX_POINTS, PERCENT, TITLES, dots_of, number, x_ticks
from contune.analysis.page import escape, lead, missing, section
from contune.report.style import inline_svg, svg_text

_LEFT_OUT = ("step", "epoch", "lr", "views_per_second")
_FIRST = ("loss", "knn_top1", "online_top1", "train_top1", "positive_gradient", "negative_gradient")
_DASHES = ((), (5, 2), (1.5, 1.5), (6, 2, 1.5, 2))
NUM_COLOURS = 10
MOST_GROUPS = NUM_COLOURS * len(_DASHES)

# Drawn in these, which nothing else uses, and then exchanged for the page's own: one drawing, light and dark.
_TEXT, _GRID = "#010203", "#010204"
_GROUP_COLOURS = [f"#0201{place:02x}" for place in range(NUM_COLOURS)]
_COLOURS = {_TEXT: "var(--muted)", _GRID: "var(--line)"} | {
    drawn: f"var(--c{place})" for place, drawn in enumerate(_GROUP_COLOURS)
}


def curves(groups: Sequence[Group]) -> str:
    shown = groups[:MOST_GROUPS]
    names = sorted({name for group in shown for run in group.runs for line in run.metrics for name in line}, key=_place)
    names = [name for name in names if name not in _LEFT_OUT and not name.startswith("supcon_")]
    if not names:
        return section("curves", "Training", missing("None of these runs has logged anything."))
    figures = [_figure(name, shown) for name in names]
    text = "A line for each run; in the figures’ colours and dashes:"
    if len(groups) > MOST_GROUPS:
        text = f"The first {MOST_GROUPS} of {len(groups)} rows. {text}"
    return section(
        "curves", "Training", lead(text), _legend(shown), '<div class="curves">', *(f for f in figures if f), "</div>"
    )


def _place(name: str) -> tuple[int, str]:
    return (_FIRST.index(name) if name in _FIRST else len(_FIRST)), name


def _legend(groups: Sequence[Group]) -> str:
    items = "\n".join(
        f'<li><svg viewBox="0 0 34 12" width="34" height="12" aria-hidden="true"><line x1="1" y1="6" x2="33" y2="6" '
        f'stroke="var(--c{place % NUM_COLOURS})" stroke-width="2.6"{_svg_dash(place)} /></svg>'
        f"{escape(group.title)}</li>"
        for place, group in enumerate(groups)
    )
    return f'<ul class="legend keys">\n{items}\n</ul>'


def _dash(place: int) -> tuple[float, ...]:
    """Neighbours differ in it too: colour alone does not tell lines apart for everybody."""
    return _DASHES[(place + place // NUM_COLOURS) % len(_DASHES)]


def _svg_dash(place: int) -> str:
    pattern = " ".join(f"{1.8 * part:g}" for part in _dash(place))
    return f' stroke-dasharray="{pattern}"' if pattern else ""


def _figure(name: str, groups: Sequence[Group]) -> str:
    """Nothing where no run has a finite value of it."""
    lines = [
        (place, points_N2)
        for place, group in enumerate(groups)
        for run in group.runs
        if len(points_N2 := _points(run, name))
    ]
    if not lines:
        return ""
    title = escape(TITLES.get(name, name.replace("_", " ").capitalize()))
    ends = [float(points_N2[-1, 1]) for _, points_N2 in lines]
    description = f"{title} by epoch of {len(lines)} runs: at the end {number(min(ends))} to {number(max(ends))}"
    return f"<figure><figcaption>{title}</figcaption>{_draw(name, lines, description)}</figure>"


def _points(run: Run, name: str) -> np.ndarray:
    """(N, 2), thinned to what a drawing can show."""
    scale = 100 if name.endswith(PERCENT) else 1
    logged = [(line.get("epoch", line["step"]), scale * line[name]) for line in run.metrics if name in line]
    points_N2 = np.array([point for point in logged if isfinite(point[1])]).reshape(-1, 2)
    return points_N2[:: -(-len(points_N2) // MAX_POINTS)] if len(points_N2) else points_N2


def _draw(name: str, lines: Sequence[tuple[int, np.ndarray]], description: str) -> str:
    settings: dict[Any, Any] = {"svg.hashsalt": f"contune {name}", "svg.fonttype": "none", "path.simplify": False}
    with matplotlib.rc_context(settings):
        figure = Figure(figsize=(3.6, 2.3), layout="constrained")
        axes = figure.add_subplot()
        for place, points_N2 in lines:
            axes.plot(
                *points_N2.T, color=_GROUP_COLOURS[place % NUM_COLOURS], linewidth=1.6,
                linestyle=(0, _dash(place)) if _dash(place) else "-", marker="o", markersize=dots_of(points_N2[:, 0]),
            )  # fmt: skip
        axes.set_xlabel("epoch", color=_TEXT)
        for side in axes.spines.values():
            side.set_visible(False)
        axes.grid(axis="y", color=_GRID, linewidth=0.8)
        axes.tick_params(length=0, labelcolor=_TEXT, labelsize=9)
        x_ticks(axes, np.concatenate([points_N2[:, 0] for _, points_N2 in lines]), 4)
        axes.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
        return inline_svg(svg_text(figure), description, _COLOURS)
