"""Steps of methods as a picture: a bar each, and on it a mark where its encoder passes alone would end."""

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter

from contune.bench.method_passes import passes_in_words
from contune.bench.palette import GRID, OWN_COLOURS, QUIET, TEXT
from contune.bench.show import duration


def draw(result: dict[str, Any], out: Path) -> Path:
    """A PNG beside `out`."""
    rows = result["rows"]
    figure = Figure(figsize=(8.4, 1.7 + 0.44 * len(rows)), layout=ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.08))
    figure.suptitle(
        f"A training step and its encoder passes, {result['encoder']}, {result['images']:,} images",
        color=TEXT, fontsize=12, fontweight="bold", x=0.01, ha="left",
    )  # fmt: skip
    axes = figure.subplots()
    axes.set_title(f"{result['hardware']}, {result['engine']}", color=QUIET, fontsize=9, loc="left")
    _bars(axes, rows)
    figure.legend(loc="outside lower right", ncols=2, frameon=False, fontsize=8.5, labelcolor=TEXT)
    path = out.with_suffix(".png")
    figure.savefig(path, dpi=150, facecolor="white")
    return path


def _bars(axes: Axes, rows: list[dict[str, Any]]) -> None:
    places = range(len(rows))
    axes.barh(places, [row["ms"] for row in rows], height=0.62, color=OWN_COLOURS[0], label="a training step")
    expected = [row["expected_ms"] for row in rows]
    axes.plot(
        expected, places, linestyle="", marker="|", markersize=17, markeredgewidth=2.4, color=TEXT,
        label="its encoder passes alone",
    )  # fmt: skip
    for place, row in zip(places, rows, strict=True):
        axes.annotate(
            f"{duration(row['ms'])} ms, {row['ratio']:.2f} ×", (max(row["ms"], row["expected_ms"]), place), (6, 0),
            textcoords="offset points", va="center", color=TEXT, fontsize=8.5,
        )  # fmt: skip
    axes.set_yticks(places, [f"{row['method']}\n{passes_in_words(row)}" for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlim(0, 1.2 * max(max(row["ms"], row["expected_ms"]) for row in rows))
    axes.set_xlabel("ms a step; × the passes' time in the same laps", color=QUIET, fontsize=9)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.grid(axis="x", color=GRID, linewidth=0.9)
    axes.set_axisbelow(True)
    axes.tick_params(length=0, labelcolor=QUIET, labelsize=8.5)
    for label in axes.get_yticklabels():
        label.set_color(TEXT)
    axes.spines[:].set_visible(False)
