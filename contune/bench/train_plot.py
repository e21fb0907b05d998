"""Training speed as a picture: for each encoder and batch, a bar a stage, and a line at what the encoder alone does."""

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from contune.bench.palette import BASELINE_COLOUR, GRID, PEER_COLOURS, QUIET, TEXT

_COLOURS = {"bound": QUIET, "whole": BASELINE_COLOUR, "peer": PEER_COLOURS[0]}


def draw(result: dict[str, Any], out: Path) -> Path:
    """A PNG beside `out`."""
    panels = list(dict.fromkeys((row["encoder"], row["views"]) for row in result["rows"]))
    figure = Figure(figsize=(7.6, 0.7 + 1.9 * len(panels)), layout="constrained")
    figure.suptitle(
        f"Training at {result['image_size']} px, views a second, {result['hardware']}",
        color=TEXT, fontsize=12, fontweight="bold", x=0.01, ha="left",
    )  # fmt: skip
    for axes, (encoder, views) in zip(figure.subplots(len(panels), squeeze=False)[:, 0], panels, strict=True):
        rows = [row for row in result["rows"] if (row["encoder"], row["views"]) == (encoder, views)]
        _panel(axes, [row for row in rows if row["role"] != "part"])
        axes.set_title(f"{encoder}, {views:,} views a step", color=TEXT, fontsize=10, loc="left")
    path = out.with_suffix(".png")
    figure.savefig(path, dpi=150, facecolor="white")
    return path


def _panel(axes: Axes, rows: list[dict[str, Any]]) -> None:
    names = [row["stage"] for row in rows]
    rates = [row["views_per_second"] for row in rows]
    bars = axes.barh(names, rates, color=[_COLOURS[row["role"]] for row in rows], height=0.68)
    labels = [
        f"{row['views_per_second']:,.0f}" + (f"  ({100 * row['of_bound']:.0f} %)" if row["role"] != "bound" else "")
        for row in rows
    ]
    axes.bar_label(bars, labels, padding=4, color=TEXT, fontsize=8)
    axes.axvline(rates[0], color=GRID, linewidth=1.0, zorder=0)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.22 * max(rates))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / 1000:,g}k" if value else "0"))
    axes.tick_params(colors=QUIET, labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
