"""The tables of a comparison with a row or a column for each group: accuracies, settings."""

from collections.abc import Sequence
from typing import Any

from contune.analysis.comparison.measures import JUDGED_MEANS, NOTHING, TITLES, measures, not_alike
from contune.analysis.comparison.runs import JUDGED, SEED, Group, different_settings
from contune.analysis.page import escape, lead, missing, section
from contune.analysis.wording import duration
from contune.report.statistics import Spread


def accuracies(groups: Sequence[Group]) -> str:
    shown = measures(groups)
    rows = "\n".join(_row(group, shown) for group in groups)
    heads = "".join(f'<th scope="col" class="number-cell">{TITLES[measure]}</th>' for measure in shown)
    table = f"""<table class="comparison runs" style="--measures: {len(shown)}">
<thead><tr><th scope="col">Runs</th>{heads}<th scope="col" class="number-cell">Seeds</th>
<th scope="col" class="number-cell">Training</th></tr></thead>
<tbody>
{rows}
</tbody>
</table>"""
    text = (
        "Top-1 in per cent. Runs that differ only in the seed are one row: their mean and, for two and more, its "
        "95\u202f% confidence interval by Student’s t. One seed says nothing about what another would change."
    )
    if JUDGED in shown:
        text += JUDGED_MEANS
    if len(groups) > 1:
        text += (
            " Rows are named by the method, by what differs between rows of one method, and by data, encoder, epochs, "
            "batch and views where these differ. Where much differs, what most rows have is left out; the "
            '<a href="#settings">settings</a> have all.'
        )
    return section("accuracy", "Accuracy", lead(text), table, not_alike(groups))


def _row(group: Group, shown: Sequence[str]) -> str:
    cells = "".join(_accuracy(group, measure) for measure in shown)
    finished = [run.result for run in group.runs if run.result is not None]
    seconds = [float(result["seconds"]) for result in finished if result.get("seconds")]
    time = duration(sum(seconds) / len(seconds)) if seconds else NOTHING
    seeds = ", ".join(str(run.seed) for run in group.runs)
    return (
        f'<tr><th scope="row">{escape(group.title)}{_names(group)}</th>{cells}'
        f'<td class="number-cell">{escape(seeds)}</td><td class="number-cell">{time}</td></tr>'
    )


def _accuracy(group: Group, measure: str) -> str:
    values = list(group.by_seed(measure).values())
    if not values:
        return f'<td class="number-cell"><span class="none">{NOTHING}</span></td>'
    mean, _, interval = str(Spread.of(values)).partition(" ")
    note = f" <b>{interval}</b>" if interval else "<small>one seed</small>"
    return f'<td class="number-cell"><b>{mean}</b>{note}</td>'


def _names(group: Group) -> str:
    """Folders, and what is to be known of them."""
    lines = [f"{run.name}{f', {run.state}' if run.state else ''}" for run in group.runs]
    lines += [f"{run.name}, the same run again" for run in group.repeated]
    return "".join(f"<small>{escape(line)}</small>" for line in lines)


def settings(groups: Sequence[Group]) -> str:
    different = different_settings([group.runs[0] for group in groups])
    different.pop(SEED, None)
    if not different:
        return section("settings", "Settings", missing("All runs have the same settings, the seed aside."))
    heads = "".join(f'<th scope="col">{escape(group.title)}</th>' for group in groups)
    rows = "\n".join(
        f'<tr><th scope="row">{_key(key)}</th>' + "".join(f"<td>{_value(value)}</td>" for value in values) + "</tr>"
        for key, values in different.items()
    )
    table = f"""<div class="scroll"><table class="comparison settings">
<thead><tr><th scope="col">Setting</th>{heads}</tr></thead>
<tbody>
{rows}
</tbody>
</table></div>"""
    text = "All others are the same in every run, the seed and what belongs to the machine aside."
    return section("settings", "Settings that differ", lead(text), table)


def _key(key: str) -> str:
    """May be broken after its section: on a phone the values need the room."""
    part, _, name = key.partition(".")
    return f"<code>{escape(part)}.<wbr>{escape(name)}</code>"


def _value(value: Any) -> str:
    if value is None or value == [] or value == ():
        return f'<span class="none">{NOTHING}</span>'
    if isinstance(value, bool):
        return str(value).lower()
    text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else value
    return escape(text).replace("/", "/<wbr>")
