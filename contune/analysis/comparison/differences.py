"""Each pair of rows over the seeds that both have."""

from collections.abc import Sequence
from itertools import combinations

from contune.analysis.comparison.measures import NOTHING, TITLES, measures
from contune.analysis.comparison.pairing import note, shares_course
from contune.analysis.comparison.runs import Group
from contune.analysis.page import escape, lead, missing, section
from contune.report.statistics import PairedDifference, paired

MOST_PAIRS = 15


def differences(groups: Sequence[Group]) -> str:
    """Nothing where there is one row."""
    if len(groups) < 2:
        return ""
    shown = measures(groups)
    pairs = [
        (one, other) for one, other in combinations(groups, 2) if any(one.pairs(other, measure) for measure in shown)
    ]
    if not pairs:
        why = "No two rows have a finished seed in common that was measured on the same data by the same protocol."
        return section("differences", "Differences", missing(why))
    text = (
        f"{_what_pairs_share(pairs)} "
        "p is how often chance alone makes a mean difference as large where there is none (two-sided paired t-test); "
        "it is not corrected for the number of rows."
    )
    if len(pairs) > MOST_PAIRS:
        text += f" The first {MOST_PAIRS} of {len(pairs)} pairs are shown."
    table = f"""<div class="scroll"><table class="comparison differences">
<thead><tr><th scope="col">Difference</th><th scope="col" class="number-cell">points, 95\u202f% interval</th>
<th scope="col" class="number-cell">p</th><th scope="col" class="number-cell">shared seeds</th></tr></thead>
{chr(10).join(_pair(one, other, shown) for one, other in pairs[:MOST_PAIRS])}
</table></div>"""
    return section("differences", "Differences", lead(text), table)


def _what_pairs_share(pairs: Sequence[tuple[Group, Group]]) -> str:
    sharing = [shares_course(one, other) for one, other in pairs]
    if all(sharing):
        return (
            "Runs of the same seed start from the same encoder weights and see the same batches, so they are compared "
            "in pairs."
        )
    if any(sharing):
        return (
            "Runs are compared in pairs of the same seed, which start from the same encoder weights and see the same "
            "batches, but for the pairs of which it says that only the seed is shared."
        )
    return (
        "Runs are compared in pairs of the same seed, which is all that they share: their first weights or their "
        "batches differ, so that pairing them takes less of the chance out of the difference."
    )


def _pair(one: Group, other: Group, shown: Sequence[str]) -> str:
    names = f'{escape(one.title)} <span class="none">minus</span> {escape(other.title)}'
    known = note(one, other)
    names += f"<small>{escape(known)}</small>" if known else ""
    rows = "\n".join(_row(measure, pairs) for measure in shown if (pairs := one.pairs(other, measure)))
    return f'<tbody>\n<tr><th scope="rowgroup" colspan="4">{names}</th></tr>\n{rows}\n</tbody>'


def _row(measure: str, pairs: Sequence[tuple[float, float]]) -> str:
    found = paired([one for one, _ in pairs], [other for _, other in pairs])
    return (
        f'<tr><th scope="row">{TITLES[measure]}</th><td class="number-cell">{_points(found)}</td>'
        f'<td class="number-cell">{p_value(found.p)}</td><td class="number-cell">{found.num}</td></tr>'
    )


def _points(found: PairedDifference) -> str:
    text = str(found).replace("-", "−")
    beyond_chance = found.p is not None and found.p < 0.05
    return f"<b>{text}</b>" if beyond_chance else text


def p_value(p: float | None) -> str:
    if p is None:
        return NOTHING
    return "&lt; 0.001" if p < 0.001 else f"{p:.3f}"
