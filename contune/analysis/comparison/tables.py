"""The tables of a comparison: accuracies, differences over shared seeds, settings."""

from collections.abc import Sequence
from itertools import combinations
from typing import Any

from contune.analysis.comparison.runs import SEED, Group, different_settings
from contune.analysis.page import escape, lead, missing, section
from contune.analysis.statistics import PairedDifference, Spread, paired
from contune.analysis.wording import duration

MEASURES = {"linear": "Linear probe", "knn": "Nearest neighbours"}
MOST_PAIRS = 15
NOTHING = "–"


def accuracies(groups: Sequence[Group]) -> str:
    rows = []
    for group in groups:
        cells = "".join(_accuracy(group, measure) for measure in MEASURES)
        finished = [run.result for run in group.runs if run.result is not None]
        seconds = [float(result["seconds"]) for result in finished if result.get("seconds")]
        time = duration(sum(seconds) / len(seconds)) if seconds else NOTHING
        seeds = ", ".join(str(run.seed) for run in group.runs)
        rows.append(
            f'<tr><th scope="row">{escape(group.title)}{_names(group)}</th>{cells}'
            f'<td class="number-cell">{escape(seeds)}</td><td class="number-cell">{time}</td></tr>'
        )
    heads = "".join(f'<th scope="col" class="number-cell">{title}, top-1 %</th>' for title in MEASURES.values())
    table = f"""<div class="scroll"><table class="comparison">
<thead><tr><th scope="col">Runs</th>{heads}<th scope="col" class="number-cell">Seeds</th>
<th scope="col" class="number-cell">Training</th></tr></thead>
<tbody>
{chr(10).join(rows)}
</tbody>
</table></div>"""
    text = (
        "Runs that differ only in the seed are one row: their mean and, for two and more, its 95\u202f% confidence "
        "interval by Student’s t. One seed says nothing about what another would change."
    )
    return section("accuracy", "Accuracy", lead(text), table, _not_comparable(groups))


def differences(groups: Sequence[Group]) -> str:
    """Each pair of rows over the seeds that both have."""
    if len(groups) < 2:
        return ""
    pairs = list(combinations(groups, 2))
    rows = [row for one, other in pairs[:MOST_PAIRS] for row in _difference_rows(one, other)]
    text = (
        "Runs of the same seed start from the same weights and see the same batches, so they are compared in pairs. "
        "p is how often chance alone makes a mean difference as large where there is none (two-sided paired t-test); "
        "it is not corrected for the number of rows."
    )
    if len(pairs) > MOST_PAIRS:
        text += f" The first {MOST_PAIRS} of {len(pairs)} pairs are shown."
    if not rows:
        why = "No two rows have a finished seed in common that was measured on the same data by the same protocol."
        return section("differences", "Differences", missing(why))
    table = f"""<div class="scroll"><table class="comparison">
<thead><tr><th scope="col">Difference</th><th scope="col">Measure</th>
<th scope="col" class="number-cell">points, 95\u202f% interval</th><th scope="col" class="number-cell">p</th>
<th scope="col" class="number-cell">shared seeds</th></tr></thead>
<tbody>
{chr(10).join(rows)}
</tbody>
</table></div>"""
    return section("differences", "Differences", lead(text), table)


def settings(groups: Sequence[Group]) -> str:
    different = different_settings([group.runs[0] for group in groups])
    different.pop(SEED, None)
    if not different:
        return section("settings", "Settings", missing("All runs have the same settings, the seed aside."))
    heads = "".join(f'<th scope="col">{escape(group.title)}</th>' for group in groups)
    rows = "\n".join(
        f'<tr><th scope="row"><code>{escape(key)}</code></th>'
        + "".join(f"<td>{_value(value)}</td>" for value in values)
        + "</tr>"
        for key, values in different.items()
    )
    table = f"""<div class="scroll"><table class="comparison">
<thead><tr><th scope="col">Setting</th>{heads}</tr></thead>
<tbody>
{rows}
</tbody>
</table></div>"""
    return section(
        "settings", "Settings that differ", lead("All others are the same in every run, the seed aside."), table
    )


def _accuracy(group: Group, measure: str) -> str:
    values = list(group.by_seed(measure).values())
    if not values:
        return f'<td class="number-cell"><span class="none">{NOTHING}</span></td>'
    note = "" if len(values) > 1 else "<small>one seed</small>"
    return f'<td class="number-cell"><b>{Spread.of(values)}</b>{note}</td>'


def _names(group: Group) -> str:
    """Folders, and what is to be known of them."""
    lines = [f"{run.name}{f', {run.state}' if run.state else ''}" for run in group.runs]
    lines += [f"{run.name}, the same run again" for run in group.repeated]
    return "".join(f"<small>{escape(line)}</small>" for line in lines)


def _not_comparable(groups: Sequence[Group]) -> str:
    for measure, title in MEASURES.items():
        ways = {run.measured_as(measure) for group in groups for run in group.runs if run.top1(measure) is not None}
        if len(ways) > 1:
            texts = sorted(" · ".join(str(part) for part in way if part) for way in ways)
            items = "".join(f"<li>{escape(text)}</li>" for text in texts)
            return f'<p class="lead">{title}: not all rows were measured alike.</p><ul class="notes">{items}</ul>'
    return ""


def _difference_rows(one: Group, other: Group) -> list[str]:
    rows = []
    for measure, title in MEASURES.items():
        ours, theirs = one.by_seed(measure), other.by_seed(measure)
        seeds = sorted(ours.keys() & theirs.keys())
        if not seeds or one.runs[0].measured_as(measure) != other.runs[0].measured_as(measure):
            continue
        found = paired([ours[seed] for seed in seeds], [theirs[seed] for seed in seeds])
        names = f"{escape(one.title)} <span class='none'>minus</span> {escape(other.title)}"
        rows.append(
            f'<tr><th scope="row">{names}</th><td>{title}</td><td class="number-cell">{_points(found)}</td>'
            f'<td class="number-cell">{p_value(found.p)}</td><td class="number-cell">{found.num}</td></tr>'
        )
    return rows


def _points(found: PairedDifference) -> str:
    text = str(found).replace("-", "−")
    beyond_chance = found.p is not None and found.p < 0.05
    return f"<b>{text}</b>" if beyond_chance else text


def p_value(p: float | None) -> str:
    if p is None:
        return NOTHING
    return "&lt; 0.001" if p < 0.001 else f"{p:.3f}"


def _value(value: Any) -> str:
    if value is None:
        return f'<span class="none">{NOTHING}</span>'
    if isinstance(value, bool):
        return str(value).lower()
    return escape(", ".join(map(str, value)) if isinstance(value, list | tuple) else value)
