"""The curves of a run that its result.json keeps, so that figures can be drawn again without the run's folder."""

from collections.abc import Mapping, Sequence
from math import isfinite

from contune.train.gradients import LOGGED

CURVES = ("loss", *LOGGED)
MOST_POINTS = 100


def thinned(
    lines: Sequence[Mapping[str, float]], keys: Sequence[str] = CURVES, most: int = MOST_POINTS
) -> dict[str, list[float | None]]:
    """Means of as many neighbouring lines of metrics.jsonl as leave `most` points or fewer, by key; none logged: {}.

    What was never a finite number within a point is None there. Five digits are more than a drawing shows.
    """
    logged = [key for key in keys if any(key in line for line in lines)]
    if not logged:
        return {}
    size = -(-len(lines) // most)
    groups = [lines[start : start + size] for start in range(0, len(lines), size)]
    return {key: [_mean(group, key) for group in groups] for key in ("epoch", *logged)}


def _mean(lines: Sequence[Mapping[str, float]], key: str) -> float | None:
    values = [line[key] for line in lines if key in line and isfinite(line[key])]
    return float(f"{sum(values) / len(values):.5g}") if values else None
