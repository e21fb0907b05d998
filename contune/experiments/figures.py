"""The figures of experiments, one function per layout. Filled marks are ours, open ones are numbers that others report.

Every accuracy has its 95 % interval: a thick bar over seeds, a thin one for the finite number of images of one seed.
"""

from collections.abc import Callable, Sequence
from functools import partial
from math import nan

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from contune.eval.measures import FAST, KNN, LINEAR, TOP1
from contune.experiments.plan import PAPER, SUPCON, TCL, Experiment, Outcome, protocols_differ
from contune.experiments.tables import GRADIENTS, by_place, compared
from contune.report import wilson_interval
from contune.report.style import INK, LINE, METHOD_STYLES, MUTED, STYLE, MethodStyle, quiet

WIDTH = 8.2
"""Inches."""
THICK, THIN = 2.0, 0.9
"""Widths of bars: over seeds, and of one seed."""
OTHERS = ("s", "^")
"""Marks of numbers that others report, of whom there are two at most."""
BASELINES = ((0, (1, 1.5)), (0, (4, 2, 1, 2)))
"""Lines of baselines, of which there are two at most: dotted and dash-dotted."""
DASHED = (0, (4, 2))
TOP_1 = "top-1 accuracy, %"


def make_figure(experiment: Experiment, outcomes: Sequence[Outcome]) -> Figure:
    with matplotlib.rc_context(STYLE):
        return FIGURES[experiment.layout](experiment, outcomes)


def methods_figure(experiment: Experiment, outcomes: Sequence[Outcome]) -> Figure:
    """A line per method, the best linear accuracy on top; baselines at the bottom, and as lines through all others."""
    heights = {each.row.title: spread.mean for each in outcomes if (spread := each.accuracy(LINEAR))}
    rows = sorted(outcomes, key=lambda each: (each.row.is_baseline, -heights.get(each.row.title, 0.0)))
    figure, (axes,) = _panels(1, 1.2 + 0.36 * len(rows))
    sources = dict(zip(dict.fromkeys(name for each in rows for name in each.row.reported), OTHERS, strict=False))
    baselines = [each for each in rows if each.row.is_baseline and each.row.title in heights]
    kinds = [MethodStyle("linear probe", INK, "o"), MethodStyle("kNN", INK, "|")]
    handles = [*map(_handle, kinds), *(_open_handle(source, marker) for source, marker in sources.items())]
    for y, each in enumerate(rows):
        style = METHOD_STYLES.get(each.row.name.removesuffix("-ssl"), MethodStyle(each.row.title, INK, "o"))
        for source, value in each.row.reported.items():
            _mark(axes, value, y, MethodStyle(source, MUTED, sources[source]), filled=False)
        for column, x, offset, marker in ((LINEAR, 1.1, -0.12, style.marker), (KNN, 1.2, 0.2, "|")):
            if (spread := each.accuracy(column)) is not None:
                axes.text(x, y, f"{spread.mean:.1f}", transform=axes.get_yaxis_transform(), ha="right", va="center")
                if not each.collapsed():  # far to the left of everything of interest
                    _accuracy_mark(axes, each, y + offset, style._replace(marker=marker), column)
    for each, dashes in zip(baselines, BASELINES, strict=False):
        axes.axvline(heights[each.row.title], color=MUTED, linewidth=1.2, linestyle=dashes, zorder=1)
        handles.append(Line2D([], [], color=MUTED, linestyle=dashes, label=f"{each.row.title.lower()}, linear"))
    for x, heading in ((1.1, "linear"), (1.2, "kNN")):
        axes.text(x, -0.8, heading, transform=axes.get_yaxis_transform(), ha="right", color=MUTED, fontsize=9)
    _name_rows(axes, [f"{each.row.title} ({each.remark()})".removesuffix(" ()") for each in rows])
    axes.set_xlabel(f"{TOP_1} ({_conditions(outcomes)})")
    return _with_legend(figure, experiment.title, [*handles, *_bar_handles(outcomes, LINEAR)])


def grid_figure(experiment: Experiment, outcomes: Sequence[Outcome]) -> Figure:
    """A panel per data set, a line per method."""
    cells, methods, places = by_place(outcomes)
    figure, panels = _panels(max(1, len(places)), 1.5 + 0.42 * len(methods))
    for axes, place in zip(panels, places, strict=False):
        for y, method in enumerate(methods):
            if (method, place) in cells:
                _accuracy_mark(axes, cells[method, place], y, _style(method))
                _paper_mark(axes, cells[method, place], y + 0.25)
        _name_rows(axes, methods if axes is panels[0] else [""] * len(methods))
        axes.set_title(place, loc="left", fontsize=10)
        axes.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
    figure.supxlabel(f"{TOP_1} ({_conditions(outcomes)})", fontsize=10, color=MUTED)
    return _with_legend(figure, experiment.title, _method_handles(methods, outcomes))


def sweep_figure(experiment: Experiment, outcomes: Sequence[Outcome]) -> Figure:
    """Accuracy over the values of a setting, a line per method."""
    cells, methods, places = by_place(outcomes)
    figure, (axes,) = _panels(1, 3.8)
    for number, method in enumerate(methods):
        offset, points = 0.06 * (number - (len(methods) - 1) / 2), []
        for x, place in enumerate(places):
            if (method, place) in cells:
                each = cells[method, place]
                points += [(x + offset, spread.mean)] if (spread := each.accuracy()) else []
                _accuracy_mark(axes, each, x + offset, _style(method), vertical=True)
                _paper_mark(axes, each, x + 2.5 * offset, vertical=True)
        if len(places) > 2:  # two values are a comparison, not a trend
            axes.plot(*zip(*points, strict=True), color=_style(method).color, linewidth=1.4, alpha=0.8, zorder=1)
    quiet(axes, grid="y")
    axes.set_xlim(-0.5, len(places) - 0.5)
    axes.set_xticks(range(len(places)), places)
    axes.set_xlabel(experiment.setting)
    axes.set_ylabel(f"{TOP_1} ({_conditions(outcomes)})")
    return _with_legend(figure, experiment.title, _method_handles(methods, outcomes))


def seeds_figure(experiment: Experiment, outcomes: Sequence[Outcome]) -> Figure:
    """Every run a tick, the mean with its interval, and the paired differences in a second panel."""
    figure, (runs, differences) = _panels(2, 1.5 + 0.55 * len(outcomes))
    for y, each in enumerate(outcomes):
        style, seeds = _style(each.row.method), list(each.by_seed().values())
        runs.plot(seeds, [y + 0.25] * len(seeds), "|", markersize=7, color=style.color, alpha=0.7)
        _accuracy_mark(runs, each, y, style)
        _paper_mark(runs, each, y - 0.25)
    _name_rows(runs, [each.row.method for each in outcomes])
    runs.set_xlabel(f"{TOP_1} (a tick per seed)")
    names: list[str] = []
    for lower, upper in compared(outcomes):
        style = _style(upper.row.method)
        for column in (TOP1, FAST) if protocols_differ((lower, upper)) else (TOP1,):
            if (found := upper.difference(lower, column)) is not None:
                ends = found.mean - (found.half or 0.0), found.mean + (found.half or 0.0)
                _mark(differences, found.mean, len(names), style, ends)
            papers = [each.row.reported.get(PAPER, nan) for each in (upper, lower)]
            if column == TOP1:
                _mark(differences, papers[0] - papers[1], len(names) - 0.25, style, filled=False)
            names.append(f"{upper.row.method} − {lower.row.method}{', fast probe' if column == FAST else ''}")
    differences.axvline(0, color=MUTED, linewidth=1, zorder=1)
    _name_rows(differences, names)
    differences.set_xlabel("paired difference, points")
    return _with_legend(figure, experiment.title, _method_handles([each.row.method for each in outcomes], outcomes))


def _gradients_figure(experiment: Experiment, outcomes: Sequence[Outcome], *, parameter: str, key: str) -> Figure:
    """A gradient over training for each k1 or k2, the same relative to SupCon's on the same batches, and accuracy.

    Runs with other values are in other states of training; only the second panel shows the effect of the parameter.
    """
    planned = [each for each in outcomes if each.row.method == TCL]
    tuned = [each for each in planned if each.results] or planned
    supcon = next(each for each in outcomes if each.row.method == SUPCON)
    red, blues = _style(SUPCON), matplotlib.colormaps["Blues"]
    handles: list[Line2D | Patch] = []
    shades = [blues(0.4 + 0.6 * number / max(1, len(tuned) - 1)) for number in range(len(tuned))]
    figure = Figure(figsize=(WIDTH, 6.2), layout="constrained", facecolor="white")
    panels = figure.subplot_mosaic([["runs", "relative"], ["accuracy", "accuracy"]], height_ratios=[1.3, 1])
    for each, shade in zip(tuned, shades, strict=True):
        own, on_same_batches = each.curve(key), each.curve(f"supcon_{key}")
        if own is not None and on_same_batches is not None:
            ratios = [100 * (a / b - 1) if b else nan for a, b in zip(own[1], on_same_batches[1], strict=True)]
            panels["runs"].plot(*own, linewidth=1.8, color=shade)
            panels["relative"].plot(own[0], ratios, linewidth=1.8, color=shade)
        style = MethodStyle(f"{TCL}, {parameter} = {_value(each):,g}", matplotlib.colors.to_hex(shade), "o")
        handles.append(_handle(style, line=True))
        _accuracy_mark(panels["accuracy"], each, _value(each), style, vertical=True)
        _paper_mark(panels["accuracy"], each, _value(each), vertical=True)
    if (own := supcon.curve(key)) is not None:
        panels["runs"].plot(*own, linewidth=1.8, color=red.color, linestyle=DASHED)
    panels["relative"].axhline(0, color=red.color, linewidth=1.4, linestyle=DASHED, zorder=1)
    handles.append(Line2D([], [], color=red.color, linestyle=DASHED, label=SUPCON))
    if (spread := supcon.accuracy()) is not None:
        half = spread.half or 0.0
        panels["accuracy"].axhspan(spread.mean - half, spread.mean + half, color=LINE, zorder=0)
        panels["accuracy"].axhline(spread.mean, color=red.color, linewidth=1.4, linestyle=DASHED, zorder=1)
        handles += [Patch(color=LINE, label=f"{SUPCON}, 95 % interval over seeds")] if half else []
    for name, title, label in (
        ("runs", "each run by itself", f"mean {GRADIENTS[key]}"),
        ("relative", f"against {SUPCON}'s formula on the same batches", f"difference from {SUPCON}'s, %"),
        ("accuracy", "after training", TOP_1),
    ):
        quiet(panels[name], grid="y")
        panels[name].set_title(title, loc="left", fontsize=10)
        panels[name].set_ylabel(label)
        panels[name].set_xlabel(parameter if name == "accuracy" else "epoch")
    places = [_value(each) for each in tuned]
    panels["accuracy"].set_xscale("log" if parameter == "k1" else "linear")
    panels["accuracy"].minorticks_off()
    panels["accuracy"].set_xticks(places, [f"{place:,g}" for place in places])
    papers = [_open_handle("paper", "o")] if any(PAPER in each.row.reported for each in tuned) else []
    return _with_legend(figure, experiment.title, [*handles, *papers, *_bar_handles(tuned)])


FIGURES: dict[str, Callable[[Experiment, Sequence[Outcome]], Figure]] = {
    "methods": methods_figure,
    "grid": grid_figure,
    "sweep": sweep_figure,
    "seeds": seeds_figure,
    "k1": partial(_gradients_figure, parameter="k1", key="positive_gradient"),
    "k2": partial(_gradients_figure, parameter="k2", key="negative_gradient"),
}


def _value(outcome: Outcome) -> float:
    """Of k1 or k2, which stands last in the row's place."""
    return float(outcome.row.at.split()[-1])


def _style(method: str) -> MethodStyle:
    return METHOD_STYLES[method.lower()]


def _panels(num: int, height: float) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(WIDTH, height), layout="constrained", facecolor="white")
    return figure, list(figure.subplots(1, num, squeeze=False)[0])


def _mark(
    axes: Axes,
    value: float,
    place: float,
    style: MethodStyle,
    ends: tuple[float, float] | None = None,
    *,
    width: float = THICK,
    filled: bool = True,
    vertical: bool = False,
) -> None:
    """A value on the axis of accuracies, x unless vertical, with a bar from end to end."""
    low, high = ends or (value, value)
    error = [[max(0.0, value - low)], [max(0.0, high - value)]]
    axes.errorbar(
        *((place, value) if vertical else (value, place)),
        xerr=None if vertical else error,
        yerr=error if vertical else None,
        marker=style.marker,
        color=style.color,
        markerfacecolor=style.color if filled else "none",
        elinewidth=width,
        zorder=4 if filled else 3,
    )


def _accuracy_mark(
    axes: Axes, outcome: Outcome, place: float, style: MethodStyle, column: str = TOP1, *, vertical: bool = False
) -> None:
    """With the interval over seeds, or that of the images of one seed; nothing if there is no result."""
    if (spread := outcome.accuracy(column)) is not None:
        mean, half = spread
        images = wilson_interval(mean, outcome.scores(column)[0][1]["num_images"])
        ends, width = (images, THIN) if half is None else ((mean - half, mean + half), THICK)
        _mark(axes, mean, place, style, ends, width=width, vertical=vertical)


def _paper_mark(axes: Axes, outcome: Outcome, place: float, *, vertical: bool = False) -> None:
    """The paper's number, open, if it has one."""
    if PAPER in outcome.row.reported:
        value, half = outcome.row.reported[PAPER], outcome.row.reported_half or 0.0
        style = _style(outcome.row.method)
        _mark(axes, value, place, style, (value - half, value + half), width=THIN, filled=False, vertical=vertical)


def _name_rows(axes: Axes, names: Sequence[str]) -> None:
    """Rows from top to bottom."""
    quiet(axes, grid="both")
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(axis="y", labelcolor=INK)


def _conditions(outcomes: Sequence[Outcome]) -> str:
    """`100 epochs, 1 seed`: what decides how much an accuracy means."""
    epochs = {result["epochs"] for each in outcomes for result in each.results if result["epochs"]}
    seeds = {len(each.trained) for each in outcomes if each.trained}
    texts = [
        f"{'–'.join(map(str, sorted({min(found), max(found)})))} {noun}{'' if found == {1} else 's'}"
        for found, noun in ((epochs, "epoch"), (seeds, "seed"))
        if found
    ]
    return ", ".join(texts)


def _handle(style: MethodStyle, *, line: bool = False, filled: bool = True) -> Line2D:
    """A mark in a legend."""
    title, color, marker = style
    face: str = color if filled else "none"
    return Line2D(
        [], [], color=color, marker=marker, mfc=face, markersize=6, linestyle="-" if line else "none", label=title
    )


def _open_handle(label: str, marker: str) -> Line2D:
    return _handle(MethodStyle(label, MUTED, marker), filled=False)


def _bar_handles(outcomes: Sequence[Outcome], column: str = TOP1) -> list[Line2D]:
    """What the bars mean, as far as there are any."""
    spreads = [spread for each in outcomes if (spread := each.accuracy(column)) is not None]
    bars = []
    if any(spread.half is not None for spread in spreads):
        bars.append((THICK, "95 % interval over seeds"))
    if any(spread.half is None for spread in spreads):
        bars.append((THIN, "one seed: 95 % interval over images"))
    return [Line2D([], [], color=MUTED, linewidth=width, label=label) for width, label in bars]


def _method_handles(methods: Sequence[str], outcomes: Sequence[Outcome]) -> list[Line2D]:
    papers = [_open_handle("open: the paper", "s")] if any(PAPER in each.row.reported for each in outcomes) else []
    return [*(_handle(_style(method)) for method in methods), *papers, *_bar_handles(outcomes)]


def _with_legend(figure: Figure, title: str, handles: Sequence[Line2D | Patch]) -> Figure:
    """Title and legend on top, flush left."""
    legend = figure.legend(
        handles=list(handles), title=title, loc="outside upper left", ncols=4, frameon=False, labelcolor=MUTED,
        fontsize=9, handletextpad=0.5, columnspacing=1.4, alignment="left",
    )  # fmt: skip
    legend.get_title().set(fontsize=13, fontweight="bold")
    return figure
