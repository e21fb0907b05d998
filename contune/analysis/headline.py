"""The top of the page: what was trained on what, and how good it is."""

from pathlib import Path
from typing import Any

from contune.analysis.page import escape, lead, missing, section
from contune.analysis.wording import MEASURES, duration, measure_title, wilson_interval
from contune.console import plural

_BASELINES = {
    "linear": "pixels-linear-fast",
    "linear-fast": "pixels-linear-fast",
    "classifier": "pixels-linear-fast",
    "knn": "pixels-knn",
}


def data_title(result: dict[str, Any], config: dict[str, dict[str, Any]]) -> str:
    """`images` says nothing about a person's own folder; its name does. The whole path is among the settings."""
    path = config.get("data", {}).get("path")
    return Path(path).name or str(path) if result["data"] == "images" and path else str(result["data"])


def headline(result: dict[str, Any], data: str, why_missing: str, most_frequent: float | None) -> str:
    """`most_frequent` is the share of the largest class, in per cent: what one and the same answer scores."""
    facts = [
        f"<strong>{escape(result['encoder'])}</strong> encoder",
        plural(int(result["epochs"]), "epoch"),
        f"{duration(result['seconds'])} on {escape(result['hardware'])}",
        f"seed {escape(result['seed'])}",
    ]
    return f"""<header>
<p class="brand">contune <span>training report</span></p>
<h1>{escape(result["method"])} <span>on</span> {escape(data)}</h1>
<p class="facts">{" · ".join(facts)}</p>
{_cards(result["measures"]) or missing(why_missing)}
{_reading(result["measures"], most_frequent)}
</header>"""


def _cards(measures: list[dict[str, Any]]) -> str:
    by_name = {measure["name"]: measure for measure in measures}
    names = ["linear" if "linear" in by_name else "linear-fast", "classifier", "knn"]
    cards = "\n".join(_card(by_name[name], by_name.get(_BASELINES[name])) for name in names if name in by_name)
    return f'<ul class="cards">\n{cards}\n</ul>' if cards else ""


def _card(measure: dict[str, Any], baseline: dict[str, Any] | None) -> str:
    title, meaning = MEASURES[measure["name"]]
    beside = ""
    if baseline is not None:
        gain = measure["top1"] - baseline["top1"]
        sign = "+" if gain >= 0 else "−"
        beside = (
            f'<p class="beside">raw pixels {baseline["top1"]:.1f}\u202f% '
            f'<span class="gain">{sign}{abs(gain):.1f} points</span></p>'
        )
    return f"""<li class="card">
<p class="what">{title}</p>
<p class="number">{measure["top1"]:.1f}<span>\u202f%</span></p>
{beside}
<p class="meaning">{meaning[0].upper()}{meaning[1:]}.</p>
</li>"""


def _reading(measures: list[dict[str, Any]], most_frequent: float | None) -> str:
    if not measures:
        return ""
    text = (
        f"Each number is the share of the {measures[0]['num_images']:,} {escape(measures[0]['split'])} "
        "images, never trained on, whose class is found."
    )
    if most_frequent is not None:
        text += f" Always naming the most frequent class would score {most_frequent:.1f}\u202f%."
    return lead(text)


def accuracies(measures: list[dict[str, Any]]) -> str:
    """Nothing where nothing was measured: the headline has said why."""
    if not measures:
        return ""
    rows = "\n".join(_row(measure) for measure in measures)
    table = f"""<table class="accuracies">
<thead><tr><th scope="col">Measure</th><th scope="col">Top-1, %</th><th scope="col">Top-5, %</th>
<th scope="col">Images</th></tr></thead>
<tbody>
{rows}
</tbody>
</table>"""
    note = lead(
        "Small print under each number is its 95\u202f% interval for this many images; "
        "it does not cover what another seed would change."
    )
    return section("accuracy", "Accuracy", note, table)


def _row(measure: dict[str, Any]) -> str:
    low, high = wilson_interval(measure["top1"], measure["num_images"])
    top5 = "–" if measure["top5"] is None else f"{measure['top5']:.2f}"
    return (
        f'<tr><th scope="row">{escape(measure_title(measure["name"]))} <code>{escape(measure["name"])}</code>'
        f"<small>{escape(measure['protocol'])}</small></th>"
        f'<td class="main">{measure["top1"]:.2f}<small>{low:.1f} – {high:.1f}</small></td>'
        f"<td>{top5}</td><td>{measure['num_images']:,}<small>{escape(measure['split'])}</small></td></tr>"
    )
