"""The tables that appear while the benchmark runs."""

from collections.abc import Sequence
from typing import Any

from contune.bench.agreement import CHECK_SIZE, Check
from contune.console import say, show_table


def show_checks(checks: Sequence[Check]) -> None:
    """Who is right, against the dense form in float64."""
    if not checks:
        return
    say(f"\nequality at N = {CHECK_SIZE}, d = {checks[0].dim}: relative error against contune dense in float64")
    columns = ("loss", "contestant", "value", "gradient", "verdict")
    rows = [
        (
            item.loss,
            item.name,
            "" if item.value_error is None else f"{item.value_error:.0e}",
            "" if item.gradient_error is None else f"{item.gradient_error:.0e}",
            item.verdict if item.passed else f"not timed, {item.reason}",
        )
        for item in checks
    ]
    show_table(columns, rows, numbers=("value", "gradient"))


def show_rows(rows: Sequence[dict[str, Any]]) -> None:
    """One size: times with their quartiles, how many times contune's, and peak memory where it was measured."""
    if not rows:
        return
    say(f"\nN = {rows[0]['n']:,}, d = {rows[0]['d']}, forward + backward")
    weighed = any(row["peak_bytes"] is not None for row in rows)
    columns = ["loss", "contestant", "ms", "quartiles", "× contune", *(["extra memory"] if weighed else []), "remark"]
    table = [
        [row["loss"], row["name"], *_times(row), *([memory(row["peak_bytes"])] if weighed else []), _remark(row)]
        for row in rows
    ]
    show_table(columns, table, numbers=("ms", "quartiles", "× contune", "extra memory"))


def _times(row: dict[str, Any]) -> tuple[str, str, str]:
    if row["ms"] is None:
        return "–", "", ""
    ratio = "" if row["ratio"] is None else f"{row['ratio']:.2f}"
    return duration(row["ms"]), f"{duration(row['ms_q1'])} – {duration(row['ms_q3'])}", ratio


def _remark(row: dict[str, Any]) -> str:
    if row["status"] != "timed":
        return str(row["status"])
    counts = f"{row['rounds']} rounds, {row['warmups']} warm-ups"
    return f"{counts}; {row['note']}" if row["note"] else counts


def duration(ms: float) -> str:
    """Three digits, as many as a median over a few rounds is good for."""
    digits = 0 if ms >= 100 else 1 if ms >= 10 else 2 if ms >= 1 else 3
    return f"{ms:,.{digits}f}"


def memory(num_bytes: int | None) -> str:
    if num_bytes is None:
        return ""
    mib = num_bytes / 2**20
    return f"{mib / 1024:,.1f} GiB" if mib >= 1024 else f"{mib:,.0f} MiB" if mib >= 10 else f"{mib:.1f} MiB"
