"""The images that a run was trained without."""

from collections.abc import Sequence

from contune.analysis.page import escape, lead, section, shorten_path
from contune.console import plural
from contune.data.broken import Broken

MOST_SHOWN = 500


def skipped_images(skipped: Sequence[Broken]) -> str:
    """Nothing where all were used."""
    if not skipped:
        return ""
    rows = "\n".join(
        f'<tr><th scope="row" title="{escape(name)}">{escape(shorten_path(name, 60))}</th>'
        f"<td>{escape(reason)}</td></tr>"
        for name, reason in skipped[:MOST_SHOWN]
    )
    more = f" The first {MOST_SHOWN} are shown." if len(skipped) > MOST_SHOWN else ""
    text = lead(
        "These could not be decoded, so <code>data.broken=skip</code> left them out of training and measuring; "
        f"<code>skipped.json</code> has all of them.{more}"
    )
    table = f"""<details>
<summary>{plural(len(skipped), "broken image")}</summary>
<table class="pairs files">
<thead><tr><th scope="col">File</th><th scope="col">What is wrong</th></tr></thead>
<tbody>
{rows}
</tbody>
</table>
</details>"""
    return section("skipped", "Left out", text, table)
