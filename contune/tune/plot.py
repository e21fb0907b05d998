"""The picture of the trials: accuracy over k1, k2 as colour, the choice ringed."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from contune.report.style import STYLE, quiet
from contune.files import whole_file
from contune.report.style import INK, MUTED
from contune.tune.labels import ON_A_LINE, Name, are_near, write_names
from contune.tune.trial import Trial

DPI = 160
WIDE = 300
"""From here on between the lowest and the highest k1, only powers of ten are named on the axis."""
LEAST_HEIGHT = 1.0
"""Per cent between the lowest and the highest end of the axis, so that trials that are level look level."""
COLOURS = "viridis"
"""Told apart with any colour vision, and in grey."""


def draw_trials(path: Path, trials: Sequence[Trial], choice: Trial, *, title: str) -> None:
    with matplotlib.rc_context(STYLE), whole_file(path) as part:
        figure = trials_figure(trials, choice, title=title)
        figure.savefig(part, format="png")


def trials_figure(trials: Sequence[Trial], choice: Trial, *, title: str) -> Figure:
    finished = [trial for trial in trials if trial.is_finished]
    # What has a name is drawn on top, the choice last.
    marked = sorted((t for t in finished if t.values.k1 > 0), key=lambda t: (t.values == choice.values, t.why != ""))
    figure = Figure(figsize=(7.6, 4.4), layout="constrained", facecolor="white", dpi=DPI)
    axes = figure.add_subplot()
    quiet(axes, grid="both")
    axes.set_xlabel("k1", color=INK)
    axes.set_ylabel("linear probe on the validation split, %", color=INK)
    axes.set_title(title, loc="left", color=INK, fontsize=11)
    _k1_axis(axes, [trial.values.k1 for trial in trials if trial.values.k1 > 0])
    _accuracy_axis(axes, [trial.accuracy or 0.0 for trial in finished])
    _given_up(axes, trials)
    if marked:
        _marks(figure, axes, marked)
    if choice.values.k1 > 0:
        axes.plot(
            *_place(choice), "o", markersize=14, markerfacecolor="none", markeredgecolor=INK, markeredgewidth=1.6,
            zorder=4,
        )  # fmt: skip
    figure.draw_without_rendering()  # only then are the axes where they will be
    names = [*_names(axes, marked, choice), *_supcon(axes, finished, choice)]
    write_names(axes, names, [_place(trial) for trial in marked])
    return figure


def _place(trial: Trial) -> tuple[float, float]:
    return trial.values.k1, trial.accuracy or 0.0


def _k1_axis(axes: Axes, places: Sequence[float]) -> None:
    low, high = (min(places), max(places)) if places else (1.0, 10_000.0)
    margin = (high / low) ** 0.08 if high > low else 10**0.5
    axes.set_xscale("log")
    axes.set_xlim(low / margin, high * margin)
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0,) if high > WIDE * low else (1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axes.xaxis.set_minor_locator(NullLocator())


def _accuracy_axis(axes: Axes, accuracies: Sequence[float]) -> None:
    """There is no accuracy above 100."""
    low, high = min(accuracies), max(accuracies)
    middle, half = (low + high) / 2, 0.62 * max(high - low, LEAST_HEIGHT)
    axes.set_ylim(middle - half, middle + half)
    ticks = [round(float(tick), 6) for tick in axes.get_yticks()]
    axes.set_yticks([tick for tick in ticks if middle - half <= tick <= min(middle + half, 100)])


def _marks(figure: Figure, axes: Axes, marked: Sequence[Trial]) -> None:
    k2s = [trial.values.k2 for trial in marked]
    marks = axes.scatter(
        [trial.values.k1 for trial in marked], [trial.accuracy or 0.0 for trial in marked], c=k2s, cmap=COLOURS,
        norm=Normalize(min(k2s), max(max(k2s), min(k2s) + 0.1)), s=52, edgecolors="white", linewidths=0.8, zorder=3,
    )  # fmt: skip
    bar = figure.colorbar(marks, ax=axes, pad=0.02, aspect=30)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0, labelcolor=MUTED)
    bar.set_label("k2", color=INK)


def _given_up(axes: Axes, trials: Sequence[Trial]) -> None:
    """They have no accuracy: marks on the axis say where they were."""
    places = [trial.values.k1 for trial in trials if trial.stopped_at is not None and trial.values.k1 > 0]
    if places:
        axes.plot(
            places, [0.02] * len(places), "x", transform=axes.get_xaxis_transform(), color=MUTED, markersize=6,
            label="given up early",
        )  # fmt: skip
        axes.legend(
            loc="lower right", bbox_to_anchor=(1, 1), borderaxespad=0, frameon=False, labelcolor=MUTED, fontsize=9,
            handletextpad=0.3,
        )  # fmt: skip


def _supcon(axes: Axes, finished: Sequence[Trial], choice: Trial) -> list[Name]:
    """No k1 on a logarithmic axis: a line."""
    found = [trial for trial in finished if trial.values.k1 == 0]
    for trial in found:
        axes.axhline(trial.accuracy or 0.0, color=MUTED, linewidth=1.2, linestyle=(0, (4, 3)), zorder=1)
    return [
        Name(
            _words(t, choice) or str(t.values),
            (1.0, t.accuracy or 0.0),
            ON_A_LINE,
            ("axes fraction", "data"),
            INK if t.values == choice.values else MUTED,
        )
        for t in found
    ]


def _names(axes: Axes, marked: Sequence[Trial], choice: Trial) -> list[Name]:
    """A name for each mark that has one, the choice's first; a common one where they are drawn one on the other."""
    groups: list[list[Trial]] = []
    for trial in reversed(marked):
        if _words(trial, choice):
            near = [g for g in groups if any(are_near(axes, _place(trial), _place(other)) for other in g)]
            if near:
                near[0].append(trial)
            else:
                groups.append([trial])
    return [Name(_lines(group, choice), _place(group[0])) for group in groups]


def _lines(group: Sequence[Trial], choice: Trial) -> str:
    if len(group) == 1:
        return _words(group[0], choice)
    return "\n".join(f"{_words(trial, choice)}: {trial.values}" for trial in group)


def _words(trial: Trial, choice: Trial) -> str:
    return ", ".join(word for word in ("chosen" if trial.values == choice.values else "", trial.why) if word)
