"""`contune bench train`: views a second of training, of each part of it, and of the encoder alone."""

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import torch

from contune.bench import record
from contune.bench.failure import release_memory
from contune.bench.laps import Stage, run_laps
from contune.bench.request import clocked_device
from contune.bench.show import duration
from contune.bench.train_plot import draw
from contune.bench.train_stages import BOUND, IMAGE_SIZE, stages
from contune.config import ENGINES
from contune.console import progress, say, show_table
from contune.errors import UserError, unknown


def run_train_bench(
    *,
    encoders: Sequence[str],
    views: Sequence[int],
    engines: Sequence[str],
    device: str = "auto",
    seconds: float = 2.0,
    out: Path | None = None,
) -> dict[str, Any]:
    """Times every stage at every size, side by side; returns what is also written to `out` as JSON.

    Args:
        views: in a batch, two of each image.
        engines: of `run.engine`, the last one timed with logging too; none: those that the device has.
        seconds: for each stage at each size, give or take, after it was compiled.
    """
    where = clocked_device(device)
    engines = engines or (["eager", "graph", "compile", "fused"] if where.type == "cuda" else ["eager"])
    _check(encoders, views, engines, seconds)
    out = out or record.default_path("train", where)
    record.make_ready(out, "train")
    rows: list[dict[str, Any]] = []
    result: dict[str, Any] = {}
    with progress("bench train", len(encoders) * len(views), unit="sizes") as advance:
        for done, (encoder, number) in enumerate(product(encoders, views)):
            advance(done, f"{encoder}, {number} views: compiling")
            torch.compiler.reset()
            with stages(encoder, number, engines, where) as field:
                rows_of_size = _measure(field, encoder, number, where, seconds)
            show(rows_of_size)
            rows += rows_of_size
            result = {
                "bench": "train",
                **record.circumstances(where),
                "image_size": IMAGE_SIZE,
                "seconds": seconds,
                "rows": rows,
            }
            record.write(result, out)  # after every size, so that a run that is stopped leaves what it has
            release_memory(where)
    say(f"\nrows     {out}\ndrawing  {draw(result, out)}")
    return result


def _check(encoders: Sequence[str], views: Sequence[int], engines: Sequence[str], seconds: float) -> None:
    for name, values in (("encoders", encoders), ("views", views)):
        if not values:
            raise UserError(f"there is nothing to measure without {name}; name at least one")
    for number in views:
        if number < 4 or number % 2:
            raise UserError(f"views must be even and at least 4, two of each image, got {number}")
    for engine in engines:
        if engine not in ENGINES:
            raise unknown("engine", engine, ENGINES)
    if seconds <= 0:
        raise UserError(f"seconds must be above 0, got {seconds:g}")


def _measure(
    field: list[Stage], encoder: str, num_views: int, device: torch.device, seconds: float
) -> list[dict[str, Any]]:
    timed = run_laps(field, device, seconds)
    laps = timed.laps
    return [
        {
            "encoder": encoder,
            "views": num_views,
            "stage": stage.name,
            "role": stage.role,
            "ms": 1000 * median(lap[stage.name] for lap in laps),
            "views_per_second": num_views / median(lap[stage.name] for lap in laps),
            "of_bound": median(lap[BOUND] / lap[stage.name] for lap in laps),
            "first_seconds": timed.first_seconds[stage.name],
            "steps": timed.steps[stage.name],
        }
        for stage in field
    ]


def show(rows: Sequence[dict[str, Any]]) -> None:
    say(f"\n{rows[0]['encoder']}, {rows[0]['views']:,} views a step, {IMAGE_SIZE} px")
    whole = {row["stage"]: row["ms"] for row in rows if row["role"] == "whole"}
    fastest = min(whole.values(), default=rows[0]["ms"])
    table = [
        (
            row["stage"],
            duration(row["ms"]),
            f"{row['views_per_second']:,.0f}",
            f"{100 * row['of_bound']:.1f} %" if row["role"] != "part" else "",
            f"{100 * row['ms'] / fastest:.1f} %" if row["role"] == "part" else "",
            f"{row['first_seconds']:.0f} s",
        )
        for row in rows
    ]
    columns = ("stage", "ms", "views/s", f"of {BOUND}", "of a step", "first steps")
    show_table(columns, table, numbers=columns[1:])
