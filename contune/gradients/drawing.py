"""gradients.html with its figure and its table, from what gradients.json holds."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, MaxNLocator

from contune.console import plural
from contune.errors import UserError
from contune.files import check_like, make_parent, write_atomic
from contune.report.page import escape, header, is_page, page, section, table
from contune.report.style import INK, METHOD_STYLES, MUTED, STYLE, inline_svg, quiet, save_figure, svg_text
from contune.run import RunFolder

NUMBERS_FILE, PAGE_FILE = "gradients.json", "gradients.html"
TABLE = (
    "loss", "positives", "hard pos.", "easy pos.", "negatives", "hard neg.", "easy neg.", "pushed away %",
    "theorem 1 %", "of hard %",
)  # fmt: skip


def check_place(folder: Path, run: Path) -> None:
    """The analysis of `run` may go to its own folder, to a new one, or to one that holds an analysis of it."""
    if folder.resolve() == run.resolve():
        return
    if folder.is_file() or RunFolder(folder).config_file.exists():
        raise UserError(f"{folder} is a file or another run; choose another folder with --out")
    check_like(folder / NUMBERS_FILE, lambda path: f'"run": {json.dumps(str(run))},' in path.read_text("utf-8"))
    check_like(folder / PAGE_FILE, partial(is_page, kind="gradients"))


def write_analysis(folder: Path, found: dict[str, Any]) -> None:
    """Write gradients.json, .png, .svg and .html into `folder`."""
    make_parent(folder / NUMBERS_FILE)
    write_atomic(folder / NUMBERS_FILE, json.dumps(found, indent=2) + "\n")
    with matplotlib.rc_context(STYLE):
        figure = draw(found)
        save_figure(figure, folder / "gradients")
        drawing = inline_svg(svg_text(figure), "Gradient responses by similarity, by k1 and by k2")
    facts = [
        f"<strong>{escape(found['encoder'])}</strong> encoder after {found['step']:,} steps",
        f"{plural(found['num_batches'], 'batch', 'es')} of {found['embeddings_per_batch']:,} embeddings",
        f"τ = {found['temperature']:g}",
        f"positives: {escape(found['positives'])}",
    ]
    reading = (
        "Top: the coefficient of a pair in its anchor’s gradient over its similarity. A positive below zero is pushed "
        "away. Grey: how many pairs there are. Below: the same embeddings with other k1 or k2."
    )
    share = f"{100 * found['hard_share']:g}\u202f%"
    meaning = (
        "Positives: the mean of |X − P + Y| over an anchor’s positives, then over anchors. Negatives: the mean of P. "
        f"Hard positives: the {share} with the lowest similarity, easy ones with the highest; for negatives the other "
        "way round. Pushed away: positives with a negative’s sign. Theorem 1 (equation 16): positives with a larger "
        "response under TCL than under SupCon, which is certain where X ≥ P."
    )
    shown = table("comparison", TABLE, rows(found), numbers=range(1, len(TABLE)))
    body = [
        header("gradient responses", f"{escape(found['method'])} <span>on</span> {escape(found['data'])}", facts),
        section("figure", "Pull and push", reading, f'<figure class="drawing">{drawing}</figure>'),
        section("numbers", "Numbers", meaning, f'<div class="scroll">{shown}</div>'),
    ]
    title = f"{found['method']} on {found['data']}: gradient responses · contune"
    write_atomic(folder / PAGE_FILE, page("gradients", title, "\n".join(body)))


def rows(found: dict[str, Any]) -> list[tuple[str, ...]]:
    """SupCon, TCL at the k1 and k2 in question, then TCL at other values."""
    own = found["tcl"]
    others = [line for line in (*found["by_k1"], *found["by_k2"]) if (line["k1"], line["k2"]) != (own["k1"], own["k2"])]
    shown = []
    for line in (found["supcon"], own, *others):
        gradients = [line[f"{kind}{s}_gradient"] for s in ("positive", "negative") for kind in ("", "hard_", "easy_")]
        shares = [line.get(name) for name in ("pushed_away_share", "theorem1_share", "hard_theorem1_share")]
        shown.append((
            f"TCL  k1={line['k1']:g} k2={line['k2']:g}" if "k1" in line else "SupCon",
            *(f"{value:.3g}" for value in gradients),
            *("–" if share is None else f"{100 * share:.1f}" for share in shares),
        ))  # fmt: skip
    return shown


def draw(found: dict[str, Any]) -> Figure:
    """Responses by similarity, by k1 and by k2; positives on the left, negatives on the right."""
    figure = Figure(figsize=(8.2, 10.2), layout=ConstrainedLayoutEngine(h_pad=0.07), facecolor="white")
    axes_42 = figure.subplots(4, 2, height_ratios=(4, 1, 5, 5))
    for axes in axes_42.flat:
        quiet(axes, grid="y")
        axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.4g}"))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    for column, sign in enumerate(("positive", "negative")):
        above, pairs, by_k1, by_k2 = axes_42[:, column]
        curve = found["by_similarity"][sign]
        what = "Pull towards a positive, X − P + Y" if sign == "positive" else "Push from a negative, P"
        above.set_title(what, loc="left", fontsize=10.5, color=INK)
        for name, width in (("supcon", 3.2), ("tcl", 1.5)):  # where both coincide, SupCon's shows on both sides
            title, color, marker = METHOD_STYLES[name]
            look = {"color": color, "marker": marker, "markersize": 3.5, "linewidth": width, "label": title}
            above.plot(curve["similarity"], curve[name], **look)
        above.legend(frameon=False, fontsize=8.5)
        above.sharex(pairs)
        above.tick_params(labelbottom=False)
        pairs.fill_between(curve["similarity"], curve["share"], step="mid", color=MUTED, alpha=0.45, linewidth=0)
        pairs.grid(visible=False)
        pairs.set(yticks=[], xlabel=f"similarity of anchor and {sign}")
        pairs.set_ylabel("pairs", rotation=0, ha="right", va="center", fontsize=9)
        _draw_sweep(by_k1, found, sign, "k1", "k2")
        _draw_sweep(by_k2, found, sign, "k2", "k1")
    k1, k2 = found["tcl"]["k1"], found["tcl"]["k2"]
    batches = f"{plural(found['num_batches'], 'batch', 'es')} of {found['embeddings_per_batch']} embeddings"
    title = f"{found['method']} on {found['data']}, step {found['step']:,}: {batches}, τ = {found['temperature']:g}; "
    figure.suptitle(f"{title}TCL at k1 = {k1:g}, k2 = {k2:g}", fontsize=11, x=0.02, ha="left", color=MUTED)
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # keep this layout for every file
    return figure


def _draw_sweep(axes: Axes, found: dict[str, Any], sign: str, knob: str, other: str) -> None:
    """TCL's responses over k1 or k2, and SupCon's as levels; hard pairs solid, easy ones dashed."""
    tcl, supcon = METHOD_STYLES["tcl"], METHOD_STYLES["supcon"]
    lines = found[f"by_{knob}"]
    axes.set_title(f"Mean response from {sign}s", loc="left", fontsize=10.5, color=INK)
    axes.set_xlabel(f"{knob}  ({other} = {found['tcl'][other]:g})")
    for kind, dashes in (("hard", "-"), ("easy", "--")):
        name = f"{kind}_{sign}_gradient"
        axes.plot([line[knob] for line in lines], [line[name] for line in lines], color=tcl.color, linestyle=dashes,
                  linewidth=1.8, marker=tcl.marker, markersize=3.5, label=f"TCL, {kind}")  # fmt: skip
        label = f"SupCon, {kind}"
        axes.axhline(found["supcon"][name], color=supcon.color, linestyle=dashes, linewidth=1.5, label=label)
    if knob == "k1":
        axes.set_xscale("symlog", linthresh=1.0)
        axes.set_xlim(-0.2, 1.8 * max(1.0, *(line[knob] for line in lines)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.legend(frameon=False, fontsize=8.5)
    axes.axvline(found["tcl"][knob], color=MUTED, linewidth=0.8, linestyle=":")
    axes.set_ylim(bottom=0)
