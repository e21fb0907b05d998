"""Augmentation as a picture: a panel for each policy, a bar for each contestant, views a second on a log axis."""

from math import floor, log10
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from contune.bench.palette import BASELINE_COLOUR, GRID, OWN_COLOURS, PEER_COLOURS, QUIET, TEXT

Row = dict[str, Any]


def draw(result: dict[str, Any], out: Path) -> Path:
    """A PNG beside `out`."""
    timed = [row for row in result["rows"] if row["views_per_second"]]
    panels = {policy: [row for row in timed if row["policy"] == policy] for policy in _policies(timed)}
    heights = [len(rows) + 1.0 for rows in panels.values()]
    figure = Figure(figsize=(8.4, 1.5 + 0.34 * sum(heights)), layout=ConstrainedLayoutEngine(h_pad=0.08))
    figure.suptitle(
        f"Augmentation, views a second, {result['image_size']} px, {result['num_views']} views a call, "
        f"{result['hardware']}",
        color=TEXT, fontsize=12, fontweight="bold", x=0.01, ha="left",
    )  # fmt: skip
    if panels:
        grid = figure.subplots(len(panels), squeeze=False, sharex=True, height_ratios=heights)[:, 0]
        rates = [row["views_per_second"] for row in timed]
        for axes, (policy, rows) in zip(grid, panels.items(), strict=True):
            _panel(axes, rows, result["baseline"])
            axes.set_title(policy, color=TEXT, fontsize=11, fontweight="bold", loc="left")
            axes.set_xlim(10 ** floor(log10(min(rates) / 2)), 8 * max(rates))
        explanation = "views a second, logarithmic, with their quartiles; × the time of contune in the same laps"
        grid[-1].set_xlabel(explanation, color=QUIET, fontsize=9)
    path = out.with_suffix(".png")
    figure.savefig(path, dpi=150, facecolor="white")
    return path


def _policies(rows: list[Row]) -> list[str]:
    return list(dict.fromkeys(row["policy"] for row in rows))


def _panel(axes: Axes, rows: list[Row], baseline: str) -> None:
    rows = sorted(rows, key=lambda row: row["views_per_second"])
    axes.set_xscale("log")
    for place, row in enumerate(rows):
        rate, colour = row["views_per_second"], _colour(row["name"], baseline)
        axes.barh(place, rate, height=0.66, color=colour)
        quartiles = [rate * row["ms"] / row[key] for key in ("ms_q3", "ms_q1")]
        axes.plot(quartiles, [place, place], color=TEXT, linewidth=1.2, solid_capstyle="butt")
        axes.annotate(
            _label(row), (max(rate, quartiles[1]), place), (5, 0), textcoords="offset points", va="center",
            color=TEXT, fontsize=8.5, fontweight="bold" if row["name"] == baseline else "normal",
        )  # fmt: skip
    axes.set_yticks(range(len(rows)), [row["name"] for row in rows])
    axes.xaxis.set_major_locator(LogLocator(base=10, numticks=12))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.grid(axis="x", color=GRID, linewidth=0.9)
    axes.set_axisbelow(True)
    axes.tick_params(length=0, labelcolor=QUIET, labelsize=8.5)
    for label in axes.get_yticklabels():
        label.set_color(TEXT)
    for side in axes.spines.values():
        side.set_visible(False)


def _label(row: Row) -> str:
    rate = f"{row['views_per_second']:,.0f}"
    return rate if row["ratio"] is None or row["ratio"] == 1 else f"{rate}   {row['ratio']:.1f}× the time"


def _colour(name: str, baseline: str) -> str:
    if name == baseline:
        return BASELINE_COLOUR
    return OWN_COLOURS[0] if name.startswith("contune") else PEER_COLOURS[0 if name.startswith("torchvision") else 1]
