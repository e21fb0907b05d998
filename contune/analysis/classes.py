"""Accuracy class by class, as bars."""

from collections.abc import Mapping

from contune.analysis.page import escape, lead, section
from contune.analysis.wording import measure_title

MAX_CLASSES = 30
NUM_WORST, NUM_BEST = 15, 5
MOST_NAMED = 12


def per_class(name: str, accuracy: Mapping[str, float], counts: Mapping[str, int]) -> str:
    """`accuracy` in per cent under the measure `name`; `counts` says of every class how many images it has."""
    text = f"{escape(measure_title(name))} (<code>{escape(name)}</code>)"
    ranked = sorted(accuracy, key=lambda title: (accuracy[title], title))
    if len(ranked) <= MAX_CLASSES:
        groups = [("", list(accuracy))]
        text += ", in the order of the data set."
    else:
        groups = [
            (f"The worst {NUM_WORST}", ranked[:NUM_WORST]),
            (f"The best {NUM_BEST}", ranked[-NUM_BEST:]),
        ]
        text += f": {NUM_WORST} worst and {NUM_BEST} best of {len(ranked)} classes."
    tables = [_table(title, names, accuracy, counts) for title, names in groups]
    return section("classes", "Accuracy by class", lead(text), *tables, _not_measured(accuracy, counts))


def _not_measured(accuracy: Mapping[str, float], counts: Mapping[str, int]) -> str:
    """Nothing where every class was."""
    names = [name for name in counts if name not in accuracy]
    if not names:
        return ""
    more = f" and {len(names) - MOST_NAMED:,} more" if len(names) > MOST_NAMED else ""
    listed = escape(", ".join(names[:MOST_NAMED]))
    return f'<p class="note">Without images in this split, so not measured: {listed}{more}.</p>'


def _table(title: str, names: list[str], accuracy: Mapping[str, float], counts: Mapping[str, int]) -> str:
    rows = "\n".join(
        f'<tr><th scope="row" title="{escape(name)}">{escape(name)}</th>'
        f'<td class="bar"><div style="--share:{accuracy[name]:.1f}%"></div></td>'
        f"<td>{accuracy[name]:.1f}</td><td>{counts.get(name, 0):,}</td></tr>"
        for name in names
    )
    heading = f"<h3>{title}</h3>" if title else ""
    return f"""{heading}<table class="bars">
<thead><tr><th scope="col">Class</th><td></td><th scope="col">%</th><th scope="col">images</th></tr></thead>
<tbody>
{rows}
</tbody>
</table>"""
