"""The figure of many seeds: every run a dot, the mean with its interval, and the paired differences beside it."""

from collections.abc import Sequence
from itertools import pairwise

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from contune.experiments.outcome import FAST, TOP1, Outcome, are_measured_apart
from contune.experiments.plan import PAPER
from contune.experiments.style import (
    MARKS,
    STYLE,
    TITLE,
    WIDTH,
    Mark,
    limits,
    ours,
    papers,
    put,
    quiet,
    title_and_legend,
)
from contune.report.style import INK, LINE, MUTED

ROW_HEIGHT, HEAD, FOOT = 0.55, 0.6, 0.6
RUNS, DIFFERENCES = (0.145, 0.36), (0.73, 0.245)
"""Where the panels begin and how wide they are, in widths of the figure."""
BESIDE = 0.26
"""Above a row the paper's, below it single seeds or another measure, in rows."""


def strips(title: str, outcomes: Sequence[Outcome]) -> Figure:
    height = FOOT + ROW_HEIGHT * len(outcomes) + HEAD + (TITLE if title else 0)
    panel = FOOT / height, ROW_HEIGHT * len(outcomes) / height
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, height), facecolor="white")
        runs = figure.add_axes((RUNS[0], panel[0], RUNS[1], panel[1]))
        _runs(runs, outcomes)
        _differences(figure.add_axes((DIFFERENCES[0], panel[0], DIFFERENCES[1], panel[1])), outcomes)
        quoted = [papers()] if any(PAPER in each.row.beside for each in outcomes) else []
        title_and_legend(figure, title, [*(ours(each.row.series) for each in outcomes), *quoted])
    return figure


def _runs(axes: Axes, outcomes: Sequence[Outcome]) -> None:
    values: list[float] = []
    for number, outcome in enumerate(outcomes):
        mark, y = MARKS[outcome.row.series], -number
        _name(axes, y, outcome.row.series)
        seeds = list(outcome.by_seed(TOP1).values())
        axes.plot(
            seeds, [y - BESIDE] * len(seeds), linestyle="none", marker="|", markersize=7, color=mark.colour, alpha=0.7
        )
        values += seeds
        if (spread := outcome.accuracy(TOP1)) is not None:
            values += _interval(axes, spread.mean, spread.half, y, mark)
        else:
            place = axes.get_yaxis_transform()
            axes.text(0.5, y, outcome.remark(), transform=place, color=MUTED, fontsize=8, ha="center", va="bottom")
        if PAPER in outcome.row.beside:
            paper, half = outcome.row.beside[PAPER], outcome.row.beside_half.get(PAPER)
            values += _interval(axes, paper, half, y + BESIDE, mark, filled=False)
    _dress(axes, len(outcomes), "top-1 accuracy, %; a line for each seed", limits(values))


def _differences(axes: Axes, outcomes: Sequence[Outcome]) -> None:
    values: list[float] = [0.0]
    axes.axvline(0, color=MUTED, linewidth=1, zorder=1)
    pairs = list(pairwise(outcomes))
    for number, (below, above) in enumerate(pairs):
        mark, y = MARKS[above.row.series], -number - 0.5
        _name(axes, y, f"{above.row.series} − {below.row.series}")
        if (found := above.above(below)) is not None:
            values += _interval(axes, found.mean, found.half, y, mark)
        if are_measured_apart((below, above)) and (alike := above.above(below, FAST)) is not None:
            _name(axes, y - BESIDE, "by the fast probe of both", is_remark=True)
            values += _interval(axes, alike.mean, alike.half, y - BESIDE, mark)
        if PAPER in above.row.beside and PAPER in below.row.beside:
            values += _interval(
                axes, above.row.beside[PAPER] - below.row.beside[PAPER], None, y + BESIDE, mark, filled=False
            )
    _dress(axes, len(outcomes), "difference, points", limits(values, least=0.2))


def _name(axes: Axes, y: float, name: str, *, is_remark: bool = False) -> None:
    if not is_remark:
        axes.axhline(y, color=LINE, linewidth=0.8, zorder=0)
    colour, size = (MUTED, 8) if is_remark else (INK, None)
    axes.text(
        -0.03, y, name, transform=axes.get_yaxis_transform(), color=colour, fontsize=size, ha="right", va="center"
    )


def _interval(axes: Axes, mean: float, half: float | None, y: float, mark: Mark, *, filled: bool = True) -> list[float]:
    """A mark and a bar; what was drawn, for the limits."""
    ends = [mean - (half or 0), mean + (half or 0)]
    axes.plot(ends, [y, y], color=mark.colour, linewidth=1.8 if filled else 0.9, solid_capstyle="butt", zorder=2)
    put(axes, mean, y, mark, filled=filled)
    return ends


def _dress(axes: Axes, num_rows: int, label: str, span: tuple[float, float]) -> None:
    axes.set_ylim(0.55 - num_rows, 0.55)
    axes.set_xlim(*span)
    axes.set_yticks([])
    axes.set_xlabel(label, color=MUTED)
    axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    quiet(axes, grid="x")
