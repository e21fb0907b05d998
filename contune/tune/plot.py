"""The picture of the trials: accuracy over k1, k2 as colour, the choice ringed."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from contune.experiments.style import INK, MUTED, STYLE, quiet
from contune.tune.trial import Trial

DPI = 160
WIDE = 300
"""From here on between the lowest and the highest k1, only powers of ten are named on the axis."""
COLOURS = "viridis"
"""Told apart with any colour vision, and in grey."""


def draw_trials(path: Path, trials: Sequence[Trial], choice: Trial, *, title: str) -> None:
    with matplotlib.rc_context(STYLE):
        figure = trials_figure(trials, choice, title=title)
        figure.savefig(path, dpi=DPI)


def trials_figure(trials: Sequence[Trial], choice: Trial, *, title: str) -> Figure:
    finished = [trial for trial in trials if trial.is_finished and trial.values.k1 > 0]
    figure = Figure(figsize=(7.6, 4.4), layout="constrained", facecolor="white")
    axes = figure.add_subplot()
    quiet(axes, grid="both")
    k2s = [trial.values.k2 for trial in finished]
    scale = Normalize(min(k2s), max(max(k2s), min(k2s) + 0.1))
    marks = axes.scatter(
        [trial.values.k1 for trial in finished], [trial.accuracy or 0.0 for trial in finished],
        c=k2s, cmap=COLOURS, norm=scale, s=52, edgecolors="white", linewidths=0.8, zorder=3,
    )  # fmt: skip
    axes.set_xscale("log")
    places = [trial.values.k1 for trial in finished]
    is_wide = max(places) > WIDE * min(places)
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0,) if is_wide else (1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.margins(x=0.08, y=0.12)
    axes.set_xlabel("k1", color=INK)
    axes.set_ylabel("linear probe on the validation split, %", color=INK)
    axes.set_title(title, loc="left", color=INK, fontsize=11)
    _supcon(axes, trials)
    _given_up(axes, trials)
    _names(axes, finished, choice)
    bar = figure.colorbar(marks, ax=axes, pad=0.02, aspect=30)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0, labelcolor=MUTED)
    bar.set_label("k2", color=INK)
    return figure


def _supcon(axes: Axes, trials: Sequence[Trial]) -> None:
    for trial in trials:
        if trial.is_finished and trial.values.k1 == 0:
            axes.axhline(trial.accuracy or 0.0, color=MUTED, linewidth=1.2, linestyle=(0, (4, 3)), zorder=1)
            axes.annotate(
                "SupCon", (1.0, trial.accuracy or 0.0), xycoords=("axes fraction", "data"),
                xytext=(-4, 4), textcoords="offset points", ha="right", color=MUTED, fontsize=9,
            )  # fmt: skip


def _given_up(axes: Axes, trials: Sequence[Trial]) -> None:
    """They have no accuracy: marks on the axis say where they were."""
    places = [trial.values.k1 for trial in trials if trial.stopped_at is not None and trial.values.k1 > 0]
    if places:
        heights = [0.02] * len(places)
        axes.plot(
            places,
            heights,
            "x",
            transform=axes.get_xaxis_transform(),
            color=MUTED,
            markersize=6,
            label="given up early",
        )
        axes.legend(loc="upper left", frameon=False, labelcolor=MUTED, fontsize=9, handletextpad=0.3)


def _names(axes: Axes, finished: Sequence[Trial], choice: Trial) -> None:
    """Beside the marks, on the side where there is room."""
    low, high = axes.get_xlim()
    middle = (low * high) ** 0.5
    for trial in finished:
        k1, accuracy, is_chosen = trial.values.k1, trial.accuracy or 0.0, trial.values == choice.values
        words = [*(["chosen"] if is_chosen else []), *([trial.why] if trial.why else [])]
        if is_chosen:
            axes.plot(
                k1, accuracy, "o", markersize=14, markerfacecolor="none", markeredgecolor=INK, markeredgewidth=1.6,
                zorder=4,
            )  # fmt: skip
        if not words:
            continue
        to_the_right = k1 < middle
        axes.annotate(
            ", ".join(words), (k1, accuracy), xytext=(11 if to_the_right else -11, 0), textcoords="offset points",
            ha="left" if to_the_right else "right", va="center", color=INK, fontsize=9,
            bbox={"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.8}, zorder=2,
        )  # fmt: skip
