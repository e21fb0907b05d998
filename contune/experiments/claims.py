"""Whether runs show what the paper says of k1 and k2 (section 4.4), in plain sentences."""

from collections.abc import Sequence
from itertools import pairwise
from math import isnan, nan
from typing import NamedTuple

from contune.experiments.curve import curve
from contune.experiments.outcome import Outcome
from contune.experiments.responses import NEGATIVE, POSITIVE
from contune.experiments.style import SUPCON, TCL


class _Point(NamedTuple):
    setting: float
    mean: float
    """Over training, in that run."""
    share: float
    """Of SupCon's on the same batches."""


def claims_of_k1(outcomes: Sequence[Outcome]) -> list[str]:
    """The gradient from positives grows with k1, that from negatives falls."""
    return [
        *_trend("k1", "from positives", _points(outcomes, POSITIVE), grows=True),
        *_trend("k1", "from negatives", _points(outcomes, NEGATIVE), grows=False),
    ]


def claims_of_k2(outcomes: Sequence[Outcome]) -> list[str]:
    """The gradient from negatives grows with k2."""
    return _trend("k2", "from negatives", _points(outcomes, NEGATIVE), grows=True)


def _points(outcomes: Sequence[Outcome], key: str) -> list[_Point]:
    found = []
    for each in outcomes:
        own, beside = curve(each, key), curve(each, f"supcon_{key}")
        if each.row.series == TCL and own is not None and beside is not None:
            found.append(_Point(float(each.row.at), own.mean, own.mean / beside.mean if beside.mean else nan))
    return sorted(found)


def _trend(name: str, source: str, points: Sequence[_Point], *, grows: bool) -> list[str]:
    """Nothing of a single value, or of curves with nothing in them."""
    if len(points) < 2 or any(isnan(point.mean) or isnan(point.share) for point in points):
        return []
    first, last = points[0], points[-1]
    verb, sign = ("grows", 1) if grows else ("falls", -1)
    alike = _does([sign * (above.share - below.share) > 0 for below, above in pairwise(points)])
    in_runs = _does([sign * (above.mean - below.mean) > 0 for below, above in pairwise(points)])
    shares = f"{first.share:.0%} at {name} = {first.setting:,.0f}, {last.share:.0%} at {last.setting:,.0f}"
    return [
        f"The paper says that the gradient {source} {verb} with {name}. Beside {SUPCON}'s on the same batches it "
        f"{alike} ({shares.replace('%', ' %')}), from run to run it {in_runs} ({first.mean:.3g}, {last.mean:.3g})."
    ]


def _does(steps: Sequence[bool]) -> str:
    if all(steps):
        return "does"
    return f"does in {sum(steps)} of {len(steps)} steps" if any(steps) else "does not"
