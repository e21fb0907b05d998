"""What one needs to do the run again: its settings and its environment."""

from typing import Any

from contune.analysis.page import escape, section
from contune.analysis.wording import duration


def settings(config: dict[str, dict[str, Any]]) -> str:
    rows = "\n".join(
        f'<tr><th scope="row"><code>{escape(part)}.{escape(name)}</code></th><td>{_value(value)}</td></tr>'
        for part, values in config.items()
        for name, value in values.items()
    )
    table = f"""<details>
<summary>All settings, as <code>contune train</code> takes them</summary>
<table class="pairs">
<thead><tr><th scope="col">Setting</th><th scope="col">Value</th></tr></thead>
<tbody>
{rows}
</tbody>
</table>
</details>"""
    return section("settings", "Settings", table)


def _value(value: Any) -> str:
    if value is None:
        return '<span class="none">none</span>'
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ", ".join(escape(item) for item in value) or '<span class="none">none</span>'
    return escape(value)


def environment(result: dict[str, Any]) -> str:
    pairs = {
        "Hardware": result["hardware"],
        "Training time": duration(result["seconds"]),
        "Views per second": f"{result['views_per_second']:,.0f}",
        "Seed": result["seed"],
        "Versions": ", ".join(f"{name} {version}" for name, version in result["versions"].items()),
        "Revision": result["git_revision"] or "an installed package, no checkout",
        "Finished": result["finished"],
    }
    rows = "\n".join(f'<tr><th scope="row">{name}</th><td>{escape(value)}</td></tr>' for name, value in pairs.items())
    return section("environment", "Environment", f'<table class="pairs"><tbody>\n{rows}\n</tbody></table>')
