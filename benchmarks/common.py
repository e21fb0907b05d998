"""What the benchmarks share: interleaved timing, tables, dot plots, and results as JSON.

Every contestant runs laps in turn, in an order that is shuffled each round, so that all meet the same machine. A ratio
is the median over rounds of a contestant's time over the baseline's in the same round.
"""

import argparse
import gc
import json
import platform
import random
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import torch
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator

from contune.device import choose_device, hardware_name
from contune.report.style import BLUE, GREEN, INK, MUTED, ORANGE, PURPLE, SKY, STYLE, VERMILLION, quiet
from contune.training.log import git_revision, versions

RESULTS = Path(__file__).parent / "results"
ROUNDS = 9
COLORS = (VERMILLION, GREEN, ORANGE, PURPLE, SKY, MUTED)
PLAIN = FuncFormatter(lambda value, _: f"{value:,g}")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")

Row = dict[str, Any]


def parser(doc: str | None, name: str) -> argparse.ArgumentParser:
    """With the options that every benchmark has."""
    options = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--device", default="auto", help="auto, cpu or cuda")
    options.add_argument("--seconds", type=float, default=1.0, help="for each contestant at each size [default: 1]")
    options.add_argument("--out", type=Path, help=f"[default: {RESULTS.name}/{name}-DEVICE-DATE.json, with a PNG]")
    return options


def words(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def numbers(text: str) -> list[int]:
    return [int(part) for part in words(text)]


def start(arguments: argparse.Namespace, name: str) -> tuple[torch.device, Path]:
    """The device, and the file for the results."""
    device = choose_device(arguments.device)
    return device, arguments.out or RESULTS / f"{name}-{device.type}-{datetime.now(UTC):%Y%m%d-%H%M}.json"


def write(path: Path, device: torch.device, result: Row) -> None:
    """After every size, so that an interrupted benchmark leaves what it has measured."""
    circumstances = {
        "command": f"python benchmarks/{Path(sys.argv[0]).name} {shlex.join(sys.argv[1:])}".strip(),
        "device": device.type,
        "hardware": hardware_name(device),
        "processor": platform.processor() or platform.machine(),
        "torch_threads": torch.get_num_threads(),
        "float32_matmul": torch.get_float32_matmul_precision(),
        "versions": versions() | ({"cuda": torch.version.cuda} if torch.version.cuda else {}),
        "git_revision": git_revision(),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(circumstances | result, indent=2, allow_nan=False) + "\n")


# ---------------------------------------------------------------------------- timing


@dataclass(kw_only=True)
class Contestant:
    name: str
    call: Callable[[], object]
    """Does the work once; on a GPU it need not wait for it."""
    pause: Callable[[], None] = lambda: None
    """Makes worker processes idle until the next call."""
    ahead: int = 0
    """Calls after a pause until worker processes have nothing left that they prepared before the clock started."""
    note: str = ""
    ms: list[float] = field(default_factory=list)
    """Milliseconds of a call, by round."""
    calls: int = 1
    first_seconds: float = 0.0
    """Of the warm-up, which compiles and captures."""
    problem: str = ""
    """Why it is out of the race; empty while it is in."""


def race(field: Sequence[Contestant], device: torch.device, seconds: float, *, isolated: bool = False) -> None:
    """Fills in the times of everyone without a problem.

    `isolated`: every call starts on an idle device and is timed alone; otherwise a lap is a burst of calls.
    """
    for one in field:
        if not one.problem:
            attempt(one, device, partial(_warm_up, one, device, seconds, isolated))
    shuffled = random.Random(0)
    for _ in range(ROUNDS):
        for one in shuffled.sample(list(field), len(field)):
            if not one.problem:
                attempt(one, device, partial(_timed_lap, one, device, isolated))
            if _is_crowded(device):
                release_memory(device)


def _warm_up(one: Contestant, device: torch.device, seconds: float, isolated: bool) -> None:
    begun = time.perf_counter()
    _lap(one, device, 6, isolated)  # more than it takes to capture a CUDA graph
    one.first_seconds = time.perf_counter() - begun
    estimate = _lap(one, device, 2, isolated)
    one.calls = max(1, one.ahead, min(1000, round(1000 * seconds / ROUNDS / estimate)))


def _timed_lap(one: Contestant, device: torch.device, isolated: bool) -> None:
    one.ms.append(_lap(one, device, one.calls, isolated))


def _lap(one: Contestant, device: torch.device, calls: int, isolated: bool) -> float:
    """Milliseconds of a call: their median where each is timed alone, otherwise their mean."""
    for _ in range(max(one.ahead, 1 if _is_crowded(device) else 0)):  # whoever follows a release allocates untimed
        one.call()
    bursts = [1] * calls if isolated else [calls]
    times = [_burst(one.call, device, number) / number for number in bursts]
    one.pause()
    return median(times)


def _burst(call: Callable[[], object], device: torch.device, number: int) -> float:
    if device.type != "cuda":
        begun = time.perf_counter()
        for _ in range(number):
            call()
        return 1000 * (time.perf_counter() - begun)
    before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize(device)
    before.record()
    for _ in range(number):
        call()
    after.record()
    torch.cuda.synchronize(device)
    return float(before.elapsed_time(after))


def attempt(one: Contestant, device: torch.device, work: Callable[[], object]) -> None:
    """A contestant that fails is a row with a reason; the benchmark continues."""
    try:
        work()
    except Exception as error:  # third-party code may raise anything
        text = (str(error).splitlines() or [""])[0].strip()
        no_memory = isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in text
        one.problem = "out of memory" if no_memory else f"failed: {text or type(error).__name__}"
    if one.problem:  # after the except block: until its end the traceback keeps tensors alive
        release_memory(device)


def release_memory(device: torch.device) -> None:
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def _is_crowded(device: torch.device) -> bool:
    """Whether the allocator's cache would leave too little for the next contestant."""
    return device.type == "cuda" and torch.cuda.memory_reserved(device) > 0.1 * torch.cuda.mem_get_info(device)[1]


def summary(one: Contestant, baseline: Contestant | None) -> Row:
    """Median and quartiles in milliseconds, and the ratio to the baseline."""
    if one.problem or not one.ms:
        return {"ms": None, "ms_q1": None, "ms_q3": None, "ratio": None, "rounds": 0, "status": one.problem}
    q1, middle, q3 = quantiles(one.ms, n=4, method="inclusive")
    timed = baseline is not None and not baseline.problem
    ratio = median(a / b for a, b in zip(one.ms, baseline.ms, strict=True)) if baseline and timed else None
    return {"ms": middle, "ms_q1": q1, "ms_q3": q3, "ratio": ratio, "rounds": len(one.ms), "status": "timed"}


# ---------------------------------------------------------------------------- tables and plots


def show(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    cells = [[str(cell) for cell in row] for row in [columns, *rows]]
    widths = [max(len(row[column]) for row in cells) for column in range(len(columns))]
    print(f"\n{title}")
    for row in cells:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip(), flush=True)


def digits(value: float | None) -> str:
    """Three digits: a median over a few rounds is no more precise."""
    if value is None:
        return "–"
    return f"{value:,.{0 if value >= 100 else 1 if value >= 10 else 2 if value >= 1 else 3}f}"


def figure(rows: int, columns: int, title: str, height: float) -> tuple[Figure, list[list[Axes]]]:
    with rc_context(STYLE):
        drawing = Figure(figsize=(0.8 + 3.6 * columns, 0.9 + height * rows), layout="constrained", facecolor="white")
        drawing.suptitle(title, color=INK, fontsize=12, fontweight="bold", x=0.01, ha="left")
        return drawing, drawing.subplots(rows, columns, squeeze=False).tolist()


def save(drawing: Figure, path: Path) -> None:
    with rc_context(STYLE):
        drawing.savefig(path, dpi=150)
    print(f"\nrows  {path.with_suffix('.json')}\nplot  {path}")


def dots(axes: Axes, title: str, points: Mapping[str, float], marks: Mapping[str, str], unit: str) -> None:
    """One dot per name on a log axis, with its value beside it; `marks`: colors by name."""
    for place, (name, value) in enumerate(points.items()):
        axes.plot([value], [place], marker="o", markersize=8, color=marks.get(name, MUTED), linestyle="")
        axes.annotate(
            digits(value), (value, place), (9, 0), textcoords="offset points", va="center", color=INK, fontsize=9
        )
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter(PLAIN)
    axes.minorticks_off()
    axes.set_xlim(min(points.values()) / 1.6, max(points.values()) * 3)
    axes.set_yticks(range(len(points)), list(points))
    axes.set_ylim(len(points) - 0.4, -0.6)
    axes.set_xlabel(unit)
    axes.set_title(title, color=INK, fontsize=10, loc="left")
    quiet(axes, grid="x", labelcolor=INK)


def over_sizes(axes: Axes, rows: Sequence[Row], names: Sequence[str], key: str, title: str, unit: str) -> None:
    """Dots of each name over N, on log axes; `rows` have `name`, `n` and `key`. The first name is the baseline."""
    for index, name in enumerate(names):
        own = [(row["n"], row[key]) for row in rows if row["name"] == name and row[key]]
        if own:
            color = COLORS[(index - 1) % len(COLORS)] if index else BLUE
            axes.plot(
                *zip(*sorted(own), strict=True),
                label=name,
                color=color,
                linestyle=":",
                linewidth=1.2,
                marker=MARKERS[index % len(MARKERS)],
                markersize=5 if index else 7,
            )
    sizes = sorted({row["n"] for row in rows})
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
    axes.yaxis.set_major_formatter(PLAIN)
    axes.minorticks_off()
    axes.set_xlabel("N, embeddings in the batch")
    axes.set_ylabel(unit)
    axes.set_title(title, color=INK, fontsize=10, loc="left")
    quiet(axes, grid="y")
    axes.tick_params(axis="x", rotation=30 if len(sizes) > 4 else 0)
