"""comparison.html: several runs on one page that needs no network, no server and no JavaScript."""

from collections.abc import Mapping, Sequence

from contune.analysis.comparison.curves import curves
from contune.analysis.comparison.differences import differences
from contune.analysis.comparison.runs import Group, Run, grouped
from contune.analysis.comparison.tables import accuracies, settings
from contune.analysis.embedding_map import bare_map
from contune.analysis.measured import Measured
from contune.analysis.page import Kind, escape, lead, missing, page, section
from contune.console import plural

MOST_MAPS = 6


def comparison_page(runs: Sequence[Run], maps: Mapping[str, Measured | str] | None = None) -> str:
    """The whole page. `maps` has by a run's name what to draw its map from, or as a sentence why there is none."""
    groups = grouped(runs)
    methods = ", ".join(dict.fromkeys(str(run.config["method"]["name"]) for run in runs))
    data = ", ".join(dict.fromkeys(run.data for run in runs))
    num_unfinished = sum(run.result is None for run in runs)
    facts = [plural(len(runs), "run"), plural(len(groups), "setting")]
    facts += [f"{num_unfinished} not finished"] if num_unfinished else []
    head = f"""<header>
<p class="brand">contune <span>comparison</span></p>
<h1>{escape(methods)} <span>on</span> {escape(data)}</h1>
<p class="facts">{" · ".join(facts)}</p>
</header>"""
    body = [head, accuracies(groups), differences(groups), curves(groups), _maps(groups, maps or {}), settings(groups)]
    kind: Kind = "comparison" if len(runs) > 1 else "report"  # of a run that has not ended: it is in the report's place
    return page(kind, f"{methods} on {data} · contune", "\n".join(part for part in body if part))


def mapped_runs(runs: Sequence[Run]) -> list[Run]:
    """Whose maps the page shows: the first finished run of each setting."""
    firsts = [next((run for run in group.runs if run.result is not None), None) for group in grouped(runs)]
    return [run for run in firsts if run is not None][:MOST_MAPS]


def _maps(groups: Sequence[Group], maps: Mapping[str, Measured | str]) -> str:
    titles = {run.name: group.title for group in groups for run in group.runs}
    figures = [
        f'<figure class="card"><figcaption><b>{escape(titles[name])}</b><small>{escape(name)}</small></figcaption>'
        f"{_map(found)}</figure>"
        for name, found in maps.items()
    ]
    if not figures:
        return ""
    num_finished = sum(any(run.result is not None for run in group.runs) for group in groups)
    text = (
        "Images of the measured split by t-SNE of their cosine similarity, of the first finished run of each row. "
        "Who is near whom means something; distances between groups, and where on a map they are, do not."
    )
    if num_finished > len(figures):
        text += f" The first {len(figures)} of {num_finished} rows are shown."
    return section("maps", "Maps of the embeddings", lead(text), f'<div class="maps">{"".join(figures)}</div>')


def _map(found: Measured | str) -> str:
    return missing(escape(found)) if isinstance(found, str) else bare_map(found)
