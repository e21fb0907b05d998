"""The page of an analysis, and the rows of its table."""

from typing import Any

from contune.analysis.page import escape, lead, page, section
from contune.console import plural

TABLE = (
    "loss", "positives", "hard pos.", "easy pos.", "negatives", "hard neg.", "easy neg.", "pushed away %",
    "theorem 1 %", "of hard %",
)  # fmt: skip
_X, _P, _Y = (f"{term}<sub>ip</sub>" for term in "XPY")


def rows(found: dict[str, Any]) -> list[tuple[str, ...]]:
    """SupCon, TCL as asked, then TCL at the other values of k1 and of k2."""
    own = found["tcl"]
    others = [line for line in (*found["by_k1"], *found["by_k2"]) if (line["k1"], line["k2"]) != (own["k1"], own["k2"])]
    return [_row("SupCon", found["supcon"]), *(_row(_name(line), line) for line in (own, *others))]


def _name(line: dict[str, float]) -> str:
    return f"TCL  k1={line['k1']:g} k2={line['k2']:g}"


def _row(title: str, line: dict[str, float]) -> tuple[str, ...]:
    responses = [line[f"{kind}{sign}_gradient"] for sign in ("positive", "negative") for kind in ("", "hard_", "easy_")]
    shares = [line.get(name) for name in ("pushed_away_share", "theorem1_share", "hard_theorem1_share")]
    return (
        title,
        *(f"{value:.3g}" for value in responses),
        *("–" if share is None else f"{100 * share:.1f}" for share in shares),
    )


def analysis_page(found: dict[str, Any], drawing: str, drawing_by_anchor: str, table_file: str) -> str:
    """`found` is what gradients.json holds; the drawings are SVG elements, and the file has a row for each anchor."""
    title = f"{found['method']} on {found['data']}"
    facts = [
        f"<strong>{escape(found['encoder'])}</strong> encoder after {found['step']:,} steps",
        f"{plural(found['num_batches'], 'batch', 'es')} of {found['embeddings_per_batch']:,} embeddings",
        f"τ = {found['temperature']:g}",
        f"positives: {escape(found['positives'])}",
    ]
    header = f"""<header>
<p class="brand">contune <span>gradient responses</span></p>
<h1>{escape(found["method"])} <span>on</span> {escape(found["data"])}</h1>
<p class="facts">{" · ".join(facts)}</p>
</header>"""
    figures = [f'<figure class="drawing">{each}</figure>' for each in (drawing, drawing_by_anchor)]
    body = [
        header,
        section("figure", "Pull and push", lead(_READING), figures[0]),
        section("anchors", "Anchor by anchor", lead(_about_anchors(found, table_file)), figures[1]),
        _table(found),
    ]
    return page("gradients", f"{title}: gradient responses · contune", "\n".join(body))


_READING = (
    "Top: the coefficient of a pair in its anchor’s gradient by the similarity of the pair, below zero where a "
    "positive is pushed away; in grey how the pairs are spread. Below: the same embeddings with another k1 or k2. "
    "The dotted line marks the value in question, orange what SupCon gives."
)


def _about_anchors(found: dict[str, Any], table_file: str) -> str:
    spread = found["by_anchor"]
    pulls, pushes = (100 * spread[f"stronger_{sign}_share"] for sign in ("positive", "negative"))
    alone = spread["num_without_positive"]
    without = f"{plural(alone, 'anchor')} without a positive not counted. " if alone else ""
    return (
        f"The means are over {plural(spread['num_anchors'], 'anchor')}; here is each by itself. {without}TCL pulls "
        f"harder than SupCon at {pulls:.1f}\u202f% of them and pushes harder at {pushes:.1f}\u202f%. "
        f"Below, what this is made of: a positive is pulled by {_X} − {_P} + {_Y}, in which {_X} is the same for all "
        f"positives of an anchor, {_P} takes off for those that are near already and {_Y} is what k1 adds; with SupCon "
        f"it is {_X} − {_P}. A negative pushes by P<sub>in</sub>. <code>{escape(table_file)}</code> has these numbers "
        "of every anchor, with its image and label."
    )


def _table(found: dict[str, Any]) -> str:
    head = "".join(f'<th scope="col"{_right(number)}>{escape(name)}</th>' for number, name in enumerate(TABLE))
    body = "\n".join(
        f'<tr><th scope="row">{escape(title)}</th>'
        + "".join(f'<td class="number-cell">{v}</td>' for v in values)
        + "</tr>"
        for title, *values in rows(found)
    )
    share = f"{100 * found['hard_share']:g}\u202f%"
    text = (
        "Positives: the mean over anchors of the mean of |X − P + Y| over an anchor’s positives (the paper’s "
        f"equation 16). Negatives: the same of P. Hard positives are the {share} of a batch’s positive pairs with the "
        "lowest similarity, easy ones those with the highest; with negatives it is the other way round. "
        "Pushed away: positives whose coefficient has the sign of a negative’s. Theorem 1: positives for which "
        "TCL’s response is larger than SupCon’s; its proof holds while SupCon still pulls the positive."
    )
    table = f"""<div class="scroll"><table class="comparison">
<thead><tr>{head}</tr></thead>
<tbody>
{body}
</tbody></table></div>"""
    return section("numbers", "Numbers", lead(text), table)


def _right(column: int) -> str:
    return ' class="number-cell"' if column else ""
