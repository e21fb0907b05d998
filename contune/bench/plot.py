"""The benchmark as a picture: time and memory over batch size, a panel for each loss, a line for each contestant."""

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

from contune.bench.contestants import BASELINE
from contune.bench.failure import OUT_OF_MEMORY
from contune.bench.palette import BASELINE_COLOUR, GRID, OWN_COLOURS, PEER_COLOURS, QUIET, TEXT

_TITLES = {"tcl": "TCL", "supcon": "SupCon", "ntxent": "NT-Xent"}
_LABEL_GAP = 0.062
"""Of the height of a panel, between two labels."""

_BYTE_TICKS = [count * unit for unit in (2**10, 2**20, 2**30) for count in (1, 10, 100)]

Row = dict[str, Any]


def draw(result: dict[str, Any], out: Path) -> list[Path]:
    """A PNG beside `out` for each length of the embeddings; the paths."""
    dims = sorted({row["d"] for row in result["rows"]})
    paths = []
    for dim in dims:
        path = out.with_suffix(".png") if len(dims) == 1 else out.with_name(f"{out.stem}-d{dim}.png")
        _figure(result, dim).savefig(path, dpi=150, facecolor="white")
        paths.append(path)
    return paths


def _figure(result: dict[str, Any], dim: int) -> Figure:
    rows = [row for row in result["rows"] if row["d"] == dim]
    losses = [loss for loss in _TITLES if any(row["loss"] == loss for row in rows)]
    measures = [key for key in ("ms", "peak_bytes") if any(row[key] is not None for row in rows)]
    shape = (max(1, len(measures)), len(losses))
    figure = Figure(
        figsize=(5.6 * shape[1], 1.1 + 3.9 * shape[0]), layout=ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.12)
    )
    figure.suptitle(
        f"Contrastive losses, forward + backward, d = {dim}, {result['dtype']}, {result['hardware']}",
        color=TEXT, fontsize=14, fontweight="bold", x=0.01, ha="left",
    )  # fmt: skip
    if any(_over_memory(row) for row in rows):
        figure.supxlabel("✕ does not fit into memory at the next size", color=QUIET, fontsize=9, x=0.01, ha="left")
    colours = _colours(rows)
    panels = figure.subplots(*shape, squeeze=False, sharey="row")
    for line, measure in zip(panels, measures, strict=False):
        for axes, loss in zip(line, losses, strict=True):
            _panel(axes, [row for row in rows if row["loss"] == loss], measure, colours)
            if measure == measures[0]:
                axes.set_title(_TITLES[loss], color=TEXT, fontsize=12, fontweight="bold", loc="left")
        line[0].set_ylabel("time" if measure == "ms" else "peak extra memory", color=QUIET)
        for axes in line:  # after all lines of the row are drawn, since they share their height
            _label_lines(axes)
    return figure


def _panel(axes: Axes, rows: list[Row], measure: str, colours: dict[str, str]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    sizes = sorted({row["n"] for row in rows})
    for name in dict.fromkeys(row["name"] for row in rows):
        own = [row for row in rows if row["name"] == name]
        points = [(row["n"], row[measure]) for row in own if row[measure]]
        if not points:
            continue
        strong = name == BASELINE
        style = "-" if strong or not name.startswith(BASELINE) else (0, (4, 1.5))
        x, y = zip(*points, strict=True)
        axes.plot(
            x, y, label=name, color=colours[name], linestyle=style, marker="o",
            linewidth=3.0 if strong else 1.6, markersize=6 if strong else 3.5, zorder=3 if strong else 2,
        )  # fmt: skip
        if any(_over_memory(row) for row in own):
            axes.plot(x[-1:], y[-1:], color=colours[name], marker="X", markersize=9, zorder=4)
    axes.set_xlim(sizes[0] * 0.9, sizes[-1] * 1.1)
    _dress(axes, sizes, measure)


def _over_memory(row: Row) -> bool:
    return str(row["status"]).startswith((OUT_OF_MEMORY, "would not fit"))


def _dress(axes: Axes, sizes: list[int], measure: str) -> None:
    axes.xaxis.set_major_locator(FixedLocator(sizes))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.yaxis.set_major_locator(LogLocator(base=10, numticks=20) if measure == "ms" else FixedLocator(_BYTE_TICKS))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _time(value) if measure == "ms" else _bytes(value)))
    axes.grid(axis="y", color=GRID, linewidth=0.9)
    axes.set_axisbelow(True)
    axes.tick_params(length=0, labelcolor=QUIET, labelsize=9, labelleft=True)
    axes.tick_params(axis="x", rotation=30 if len(sizes) > 6 else 0)
    axes.set_xlabel("N, embeddings in the batch", color=QUIET)
    for side in axes.spines.values():
        side.set_visible(False)


def _label_lines(axes: Axes) -> None:
    """Names at the right of the panel, moved apart, each led to from the end of its line."""
    low, high = axes.transAxes.inverted().transform(axes.transData.transform([(1, y) for y in axes.get_ylim()]))[:, 1]
    ends = []
    for line in axes.get_lines():
        if not str(line.get_label()).startswith("_"):
            x, y = axes.transAxes.inverted().transform(axes.transData.transform(line.get_xydata()[-1]))  # type: ignore[index]  # an array, for all that its stub says
            ends.append((y, x, line))
    ends.sort(key=lambda end: end[0])
    heights = _spread([y for y, _, _ in ends], low, high)
    for height, (y, x, line) in zip(heights, ends, strict=True):
        name = str(line.get_label())
        axes.annotate(
            name, (x, y), (1.03, height), xycoords="axes fraction", textcoords="axes fraction", va="center",
            color=line.get_color(), fontsize=9, fontweight="bold" if name == BASELINE else "normal",
            arrowprops={"arrowstyle": "-", "color": line.get_color(), "linewidth": 0.6, "alpha": 0.5, "shrinkB": 4},
        )  # fmt: skip


def _spread(heights: list[float], low: float, high: float) -> list[float]:
    """Sorted heights, moved apart to be legible: halfway between moving all up and moving all down."""
    upwards = _stacked(heights, low)
    downwards = [-height for height in reversed(_stacked([-height for height in reversed(heights)], -high))]
    halfway = [(up + down) / 2 for up, down in zip(upwards, downwards, strict=True)]
    overhang = max(0.0, halfway[-1] - high) if halfway else 0.0
    return [height - overhang for height in halfway]


def _stacked(heights: list[float], lowest: float) -> list[float]:
    placed: list[float] = []
    for height in heights:
        placed.append(max(height, lowest))
        lowest = placed[-1] + _LABEL_GAP
    return placed


def _colours(rows: list[Row]) -> dict[str, str]:
    """The same contestant has the same colour in every panel."""
    names = list(dict.fromkeys(row["name"] for row in rows))
    own = [name for name in names if name.startswith(BASELINE) and name != BASELINE]
    peers = [name for name in names if not name.startswith(BASELINE)]
    colours = {BASELINE: BASELINE_COLOUR}
    colours |= {name: OWN_COLOURS[i % len(OWN_COLOURS)] for i, name in enumerate(own)}
    colours |= {name: PEER_COLOURS[i % len(PEER_COLOURS)] for i, name in enumerate(peers)}
    return colours


def _time(ms: float) -> str:
    if ms >= 1000:
        return f"{ms / 1000:,.0f} s"
    return f"{ms:g} ms" if ms >= 1 else f"{1000 * ms:g} µs"


def _bytes(value: float) -> str:
    """For the ticks, which are whole numbers of a unit."""
    name, unit = ("GiB", 2**30) if value >= 2**30 else ("MiB", 2**20) if value >= 2**20 else ("KiB", 2**10)
    return f"{value / unit:.0f} {name}"
