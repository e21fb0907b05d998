"""The figures of experiments, one function per layout. Filled marks are ours, open ones are numbers that others report.

Every accuracy has its 95 % interval: a thick bar over three or more seeds, or a thin one over the images of one run.
"""

from collections.abc import Callable, Sequence
from textwrap import fill
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from contune.eval.measures import FAST, KNN, LINEAR, TOP1
from contune.experiments.plan import PAPER, SUPCON, TCL, Experiment, Outcome, protocols_differ
from contune.experiments.tables import GRADIENTS, by_place, compared, measure_of
from contune.report.statistics import wilson_interval
from contune.report.style import INK, LINE, MUTED, STYLE, MethodStyle, method_style, quiet

WIDTH = 8.2
"""Inches."""
THICK, THIN = 2.0, 0.9
"""Widths of bars: over seeds, and over images."""
OTHERS = ("s", "^")
"""Marks of numbers that others report, of whom there are two at most."""
DASHED = (0, (4, 2))


def make_figure(experiment: Experiment, outcomes: Sequence[Outcome]) -> Figure:
    with matplotlib.rc_context(STYLE):
        return FIGURES[experiment.layout](experiment, outcomes)


def methods_figure(experiment: Experiment, outcomes: Sequence[Outcome]) -> Figure:
    """A line per method, the best linear accuracy on top, baselines at the bottom."""
    heights = {each.row.title: spread.mean for each in outcomes if (spread := each.accuracy(LINEAR))}
    rows = sorted(outcomes, key=lambda each: (each.row.is_baseline, -heights.get(each.row.title, 0.0)))
    figure, (axes,) = _panels(1, 1.2 + 0.36 * len(rows))
    names = dict.fromkeys(name for each in rows for name in each.row.reported)
    sources = {name: MethodStyle(f"hollow: {name}", MUTED, marker) for name, marker in zip(names, OTHERS, strict=False)}
    for y, each in enumerate(rows):
        style = MethodStyle(each.row.title, INK, "o")
        if each.results and not each.row.is_baseline:
            style = method_style(each.results[0]["method"])
        for source, value in each.row.reported.items():
            _mark(axes, value, y, sources[source])
        if not each.collapsed():  # far to the left of everything of interest
            _marks(axes, each, y - 0.12, style, LINEAR)
            _marks(axes, each, y + 0.2, style._replace(marker="|"), KNN)
    _name_rows(axes, [f"{each.row.title} ({each.remark()})".removesuffix(" ()") for each in rows])
    axes.set_xlabel(f"top-1 accuracy, % ({_conditions(outcomes)})")
    ours = [_handle(MethodStyle(*kind)) for kind in ((measure_of(outcomes, LINEAR), INK, "o"), ("kNN", INK, "|"))]
    theirs = [_handle(source, filled=False) for source in sources.values()]
    return _with_legend(figure, experiment.title, [*ours, *theirs, *_bar_handles(outcomes, LINEAR)])


def grid_figure(experiment: Experiment, outcomes: Sequence[Outcome]) -> Figure:
    """A panel per data set, a line per method."""
    cells, methods, places = by_place(outcomes)
    figure, panels = _panels(max(1, len(places)), 1.5 + 0.42 * len(methods))
    for axes, place in zip(panels, places, strict=False):
        for y, method in enumerate(methods):
            if (method, place) in cells:
                _marks(axes, cells[method, place], y, method_style(method), papers=y + 0.25)
        _name_rows(axes, methods if axes is panels[0] else [""] * len(methods))
        axes.set_title(place, loc="left", fontsize=10)
        axes.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
    figure.supxlabel(_label(outcomes), fontsize=10, color=MUTED)
    return _with_legend(figure, experiment.title, _bar_handles(outcomes))


def sweep_figure(experiment: Experiment, outcomes: Sequence[Outcome]) -> Figure:
    """Accuracy over the values of a setting, a line per method. Places called `SETTING: VALUE` get a panel each."""
    cells, methods, every = by_place(outcomes)
    settings = list(dict.fromkeys(place.rpartition(": ")[0] for place in every))
    figure, panels = _panels(len(settings), 3.8)
    for axes, setting in zip(panels, settings, strict=True):
        places = [place for place in every if place.rpartition(": ")[0] == setting]
        for number, method in enumerate(methods):
            offset, style, points = 0.06 * (number - (len(methods) - 1) / 2), method_style(method), []
            for x, place in enumerate(places):
                if (method, place) in cells:
                    each = cells[method, place]
                    points += [(x + offset, spread.mean)] if (spread := each.accuracy()) else []
                    _marks(axes, each, x + offset, style, papers=x + 2.5 * offset, vertical=True)
            if len(places) > 2 and points:  # two values are a comparison, not a trend
                axes.plot(*zip(*points, strict=True), color=style.color, linewidth=1.4, alpha=0.8, zorder=1)
        quiet(axes, grid="y")
        axes.set_xlim(-0.5, len(places) - 0.5)
        axes.set_xticks(range(len(places)), [place.rpartition(": ")[2] for place in places])
        axes.set_xlabel(setting or experiment.setting)
    low, high = (end(axes.get_ylim()[place] for axes in panels) for place, end in enumerate((min, max)))
    for axes in panels:
        axes.set_ylim(low, min(high, 100.5))
    panels[0].set_ylabel(_label(outcomes))
    handles = [_handle(method_style(method)) for method in methods]
    return _with_legend(figure, experiment.title, [*handles, *_bar_handles(outcomes)])


def seeds_figure(experiment: Experiment, outcomes: Sequence[Outcome]) -> Figure:
    """Every run a tick, the mean with its interval, and the differences in a second panel."""
    pairs, column = compared(outcomes), experiment.measures[0] if experiment.measures else TOP1
    figure, (runs, *others) = _panels(2 if pairs else 1, 1.5 + 0.55 * len(outcomes))
    for y, each in enumerate(outcomes):
        style, seeds = method_style(each.row.method), [score["top1"] for score in each.scores(column)]
        runs.plot(seeds, [y + 0.25] * len(seeds), "|", markersize=7, color=style.color, alpha=0.7)
        _marks(runs, each, y, style, column, papers=y - 0.25)
    _name_rows(runs, [each.row.method for each in outcomes])
    runs.set_xlabel(_label(outcomes, column))
    for differences in others:
        names: list[str] = []
        only = len(pairs) == 1
        for lower, upper in pairs:
            style, pair = method_style(upper.row.method), f"{upper.row.method} − {lower.row.method}"
            for other in experiment.measures or ((TOP1, FAST) if protocols_differ((lower, upper)) else (TOP1,)):
                if (found := upper.difference(lower, other)) is not None:
                    _mark(differences, found.mean, len(names), style, found.shown or 0.0)
                measure = measure_of(outcomes, other)
                names.append(measure if only else pair if other == column else f"{pair}, {measure}")
        differences.axvline(0, color=MUTED, linewidth=1, zorder=1)
        _name_rows(differences, names)
        difference = (
            pair.replace(" −", "\n−") + ", points" if only else "difference, points\n(same measure unless named)"
        )
        differences.set_xlabel(difference)
    tick = _handle(MethodStyle("each run", MUTED, "|"))
    return _with_legend(figure, experiment.title, [tick, *_bar_handles(outcomes)])


def gradients_figure(experiment: Experiment, outcomes: Sequence[Outcome]) -> Figure:
    """A gradient over training for each k1 or k2, the same relative to SupCon's on the same batches, and accuracy.

    Runs with other values are in other states of training; only the second panel shows the effect of the parameter.
    """
    parameter, key = experiment.layout, {"k1": "positive_gradient", "k2": "negative_gradient"}[experiment.layout]
    tuned = [each for each in outcomes if each.row.method == TCL and each.results]
    places = [float(each.row.at.split()[-1]) for each in tuned]  # k1 = 50000, k2 = 3
    supcon = next(each for each in outcomes if each.row.method == SUPCON)
    red, blues = method_style(SUPCON), matplotlib.colormaps["Blues"]
    handles: list[Line2D | Patch] = []
    shades = [blues(0.4 + 0.6 * number / max(1, len(tuned) - 1)) for number in range(len(tuned))]
    figure = Figure(figsize=(WIDTH, 6.2), layout="constrained", facecolor="white")
    panels = figure.subplot_mosaic([["runs", "relative"], ["accuracy", "accuracy"]], height_ratios=[1.3, 1])
    for each, place, shade in zip(tuned, places, shades, strict=True):
        own, on_same_batches = each.curve(key), each.curve(f"supcon_{key}")
        if own is not None and on_same_batches is not None:
            panels["runs"].plot(*own, linewidth=1.8, color=shade)
            panels["relative"].plot(own[0], 100 * (own[1] / on_same_batches[1] - 1), linewidth=1.8, color=shade)
        style = MethodStyle(f"{TCL}, {each.row.at}", matplotlib.colors.to_hex(shade), "o")
        handles.append(_handle(style, line="-"))
        _marks(panels["accuracy"], each, place, style, papers=place, vertical=True)
    if (own := supcon.curve(key)) is not None:
        panels["runs"].plot(*own, linewidth=1.8, color=red.color, linestyle=DASHED)
    panels["relative"].axhline(0, color=red.color, linewidth=1.4, linestyle=DASHED, zorder=1)
    handles.append(_handle(red._replace(marker=""), line=DASHED))
    if (spread := supcon.accuracy()) is not None:
        half = spread.shown or 0.0
        panels["accuracy"].axhspan(spread.mean - half, spread.mean + half, color=LINE, zorder=0)
        panels["accuracy"].axhline(spread.mean, color=red.color, linewidth=1.4, linestyle=DASHED, zorder=1)
        handles += [Patch(color=LINE, label=f"{SUPCON}, 95 % interval over seeds")] if half else []
    for name, title, label in (
        ("runs", f"in each run ({_conditions(outcomes)})", f"mean {GRADIENTS[key]}"),
        ("relative", f"compared with {SUPCON} on the same batches", f"difference from {SUPCON}'s, %"),
        ("accuracy", "accuracy after training", f"{measure_of(outcomes)}, top-1 %"),
    ):
        quiet(panels[name], grid="y")
        panels[name].set_title(title, loc="left", fontsize=10)
        panels[name].set_ylabel(label)
        panels[name].set_xlabel(parameter if name == "accuracy" else "epoch")
    panels["accuracy"].set_xscale("log" if parameter == "k1" else "linear")
    panels["accuracy"].minorticks_off()
    panels["accuracy"].set_xticks(places, [f"{place:,g}" for place in places])
    panels["accuracy"].margins(x=0.05 if len(tuned) > 2 else 0.3)
    return _with_legend(figure, experiment.title, [*handles, *_bar_handles(tuned)])


FIGURES: dict[str, Callable[[Experiment, Sequence[Outcome]], Figure]] = {
    "methods": methods_figure,
    "grid": grid_figure,
    "sweep": sweep_figure,
    "seeds": seeds_figure,
    "k1": gradients_figure,
    "k2": gradients_figure,
}


def _panels(num: int, height: float) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(WIDTH, height), layout="constrained", facecolor="white")
    return figure, list(figure.subplots(1, num, squeeze=False)[0])


def _mark(
    axes: Axes, value: float, place: float, style: MethodStyle, half: Any = None, *, vertical: bool = False
) -> None:
    """An accuracy at a place of the other axis, hollow without `half`, its interval as matplotlib's errorbar takes it.

    The interval over images has two sides, and a thin bar.
    """
    x, y = (place, value) if vertical else (value, place)
    face, width = "none" if half is None else style.color, THIN if isinstance(half, list) else THICK
    bar = {"yerr" if vertical else "xerr": half, "elinewidth": width, "mfc": face}
    axes.errorbar(x, y, color=style.color, marker=style.marker, zorder=3 + (half is not None), **bar)


def _marks(
    axes: Axes,
    outcome: Outcome,
    place: float,
    style: MethodStyle,
    column: str = TOP1,
    *,
    papers: float | None = None,
    vertical: bool = False,
) -> None:
    """Our accuracy with its interval over seeds, of fewer than three over images; the paper's at the place `papers`."""
    if (spread := outcome.accuracy(column)) is not None:
        half: Any = spread.shown
        if half is None:
            low, high = wilson_interval(spread.mean, outcome.scores(column)[0]["num_images"])
            half = [[max(0.0, spread.mean - low)], [max(0.0, high - spread.mean)]]
        _mark(axes, spread.mean, place, style, half, vertical=vertical)
    if papers is not None and PAPER in outcome.row.reported:
        _mark(axes, outcome.row.reported[PAPER], papers, style, vertical=vertical)


def _name_rows(axes: Axes, names: Sequence[str]) -> None:
    """Rows from top to bottom."""
    quiet(axes, grid="both")
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(axis="y", labelcolor=INK)


def _conditions(outcomes: Sequence[Outcome]) -> str:
    """`100 epochs, 1–5 seeds`: what decides how much an accuracy means."""
    epochs = {result["epochs"] for each in outcomes for result in each.results if result["epochs"]}
    seeds = {each.num_seeds for each in outcomes if each.trained}
    texts = [
        f"{'–'.join(map(str, sorted({min(found), max(found)})))} {noun}{'' if found == {1} else 's'}"
        for found, noun in ((epochs, "epoch"), (seeds, "seed"))
        if found
    ]
    return ", ".join(texts)


def _label(outcomes: Sequence[Outcome], column: str = TOP1) -> str:
    """Of an axis: the measure, and its conditions."""
    return f"{measure_of(outcomes, column) or 'accuracy'}, top-1 %\n({_conditions(outcomes)})"


def _handle(style: MethodStyle, *, line: Any = "none", filled: bool = True) -> Line2D:
    """A mark in a legend."""
    title, color, marker = style
    face = color if filled else "none"
    return Line2D([], [], color=color, marker=marker, mfc=face, markersize=6, linestyle=line, label=title)


def _bar_handles(outcomes: Sequence[Outcome], column: str = TOP1) -> list[Line2D]:
    """What the bars mean, and of top-1 the open marks, as far as there are any."""
    papers = column == TOP1 and any(PAPER in each.row.reported for each in outcomes)
    halves = {spread.shown is None for each in outcomes if (spread := each.accuracy(column)) is not None}
    bars = ((False, THICK, "95 % interval over seeds"), (True, THIN, "1 or 2 seeds: 95 % interval over images"))
    lines = [Line2D([], [], color=MUTED, linewidth=width, label=label) for one, width, label in bars if one in halves]
    return [*([_handle(MethodStyle("hollow: the paper", MUTED, "o"), filled=False)] if papers else []), *lines]


def _with_legend(figure: Figure, title: str, handles: Sequence[Line2D | Patch]) -> Figure:
    """Title and legend on top, flush left."""
    look: Any = {"frameon": False, "labelcolor": MUTED, "fontsize": 9, "handletextpad": 0.5, "columnspacing": 1.4}
    legend = figure.legend(
        handles=list(handles), title=fill(title, 66), loc="outside upper left", ncols=3, alignment="left", **look
    )
    legend.get_title().set(fontsize=13, fontweight="bold")
    return figure
