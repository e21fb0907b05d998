"""Training curves: one small drawing a metric, in the page's own colours."""

from math import isfinite
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from contune.analysis.page import escape, lead, missing, section
from contune.report.style import inline_svg, svg_text

MAX_POINTS = 400
FEW_POINTS = 12
TITLES = {
    "loss": "Loss",
    "lr": "Learning rate",
    "views_per_second": "Views per second",
    "train_top1": "Training accuracy, %",
    "online_top1": "Online probe accuracy, %",
    "online_loss": "Online probe loss",
    "positive_gradient": "Pull of positives",
    "negative_gradient": "Push of negatives",
    "theorem1_share": "Theorem 1 holds, %",
}
_FROM_ZERO = ("lr", "views_per_second")
PERCENT = ("top1", "theorem1_share")
_BESIDE = {"positive_gradient": "supcon_positive_gradient", "negative_gradient": "supcon_negative_gradient"}
"""What is drawn into another one's drawing: SupCon's responses on the same embeddings."""

# Drawn in these, which nothing else uses, and then exchanged for the page's own: one drawing, light and dark.
_COLOURS = {
    "#010203": "var(--muted)",
    "#010204": "var(--line)",
    "#010205": "var(--accent)",
    "#010206": "var(--warm)",
}
_TEXT, _GRID, _CURVE, _OTHER = _COLOURS


def curves(metrics: list[dict[str, float]]) -> str:
    names = {name for line in metrics for name in line} - {"step", "epoch", *_BESIDE.values()}
    if not names:
        why = "Nothing was logged: <code>metrics.jsonl</code> has no line with a loss."
        return section("curves", "Training", missing(why))
    text = "In bold the last value; of the learning rate the highest of those logged."
    if len(metrics) > MAX_POINTS:
        text += f" Each point is the mean of {_group_size(len(metrics))} logged lines."
    if "positive_gradient" in names:
        text += " Pull and push are mean coefficients of pairs in their anchor’s gradient, in the step of each line."
    figures = [_figure(name, metrics) for name in sorted(names, key=_place)]
    return section("curves", "Training", lead(text), '<div class="curves">', *figures, "</div>")


def _place(name: str) -> tuple[int, str]:
    """The loss first, what the method adds next, the circumstances last."""
    return {"loss": 0, "lr": 2, "views_per_second": 3}.get(name, 1), name


def _figure(name: str, metrics: list[dict[str, float]]) -> str:
    axis = "epoch" if all("epoch" in line for line in metrics) else "step"
    logged = _logged(name, axis, metrics)
    points = [(x, y) for x, y in logged if isfinite(y)]
    beside = [(x, y) for x, y in _logged(_BESIDE.get(name, ""), axis, metrics) if isfinite(y)]
    title = escape(TITLES.get(name, name.replace("_", " ").capitalize()))
    if not points:
        return f"<figure><figcaption>{title}</figcaption>{missing('Never a finite number.')}</figure>"
    values = [y for _, y in points]
    bold = number(max(values) if name == "lr" else values[-1])
    note = ""
    if len(points) < len(logged):
        note = f'<p class="note">{len(logged) - len(points)} values were not finite and are left out.</p>'
    description = f"{title} by {axis}: first {number(values[0])}, last {number(values[-1])}"
    if beside:
        description += f"; SupCon on the same embeddings: last {number(beside[-1][1])}"
    svg = draw(name, axis, np.array(points), description, np.array(beside) if beside else None)
    return f"<figure><figcaption>{title} <b>{bold}</b></figcaption>{svg}{note}</figure>"


def _logged(name: str, axis: str, metrics: list[dict[str, float]]) -> list[tuple[float, float]]:
    scale = 100 if name.endswith(PERCENT) else 1
    return [(line[axis], scale * line[name]) for line in metrics if name in line]


def draw(name: str, axis: str, points_N2: np.ndarray, description: str, beside_N2: np.ndarray | None = None) -> str:
    """An SVG element whose text is text and whose bytes depend on the arguments only; `beside_N2` is SupCon's."""
    x_N, y_N = _thin(points_N2).T
    settings: dict[Any, Any] = {"svg.hashsalt": f"contune {name}", "svg.fonttype": "none", "path.simplify": False}
    with matplotlib.rc_context(settings):
        figure = Figure(figsize=(3.6, 2.1), layout="constrained")
        axes = figure.add_subplot()
        dots = dots_of(x_N)
        axes.plot(x_N, y_N, color=_CURVE, linewidth=1.8, label="TCL", marker="o", markersize=dots)
        if beside_N2 is not None:
            axes.plot(*_thin(beside_N2).T, color=_OTHER, linewidth=1.5, linestyle="--", label="SupCon", marker="D",
                      markersize=0.9 * dots)  # fmt: skip
            axes.legend(frameon=False, fontsize=8.5, labelcolor=_TEXT)
        axes.set_xlabel(axis, color=_TEXT)
        for side in axes.spines.values():
            side.set_visible(False)
        axes.grid(axis="y", color=_GRID, linewidth=0.8)
        axes.tick_params(length=0, labelcolor=_TEXT, labelsize=9)
        axes.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
        x_ticks(axes, x_N, 5)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
        if name in _FROM_ZERO:
            axes.set_ylim(0, 1.08 * y_N.max() or 1)
        return inline_svg(svg_text(figure), description, _COLOURS)


def dots_of(x_N: np.ndarray) -> float:
    """The size of a curve's dots: where points are few each is shown, and one alone is no line at all."""
    return 4.5 if len(x_N) == 1 else 3.0 if len(x_N) <= FEW_POINTS else 0.0


def x_ticks(axes: Axes, x_N: np.ndarray, most: int) -> None:
    """Around a single place there are no others to name."""
    if len(places := np.unique(x_N)) == 1:
        axes.set_xticks(places)
    else:
        axes.xaxis.set_major_locator(MaxNLocator(most, steps=[1, 2, 5, 10]))


def number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _group_size(num_points: int) -> int:
    return -(-num_points // MAX_POINTS)


def _thin(points_N2: np.ndarray) -> np.ndarray:
    """Means of as many neighbours as it takes to have MAX_POINTS at most."""
    starts = np.arange(0, len(points_N2), _group_size(len(points_N2)))
    sums_N2: np.ndarray = np.add.reduceat(points_N2, starts)
    return sums_N2 / np.diff(np.append(starts, len(points_N2)))[:, None]
