"""gradients.html with its figure and its table, from what gradients.json holds."""

import json
import os
from collections.abc import Sequence
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
from contune.report.style import INK, MUTED, STYLE, inline_svg, method_style, quiet, save_figure, svg_text
from contune.run import RunFolder

SIGNS = ("positive", "negative")
NUMBERS_FILE, PAGE_FILE = "gradients.json", "gradients.html"
TABLE = (
    "loss", "positives", "hard pos.", "easy pos.", "negatives", "hard neg.", "easy neg.", "pushed away %",
    "theorem 1 %", "of hard %",
)  # fmt: skip


def check_place(folder: Path, run: Path) -> None:
    """The analysis of `run` may go to its own folder, to a new one, or to one that holds an analysis of it."""
    if os.path.realpath(folder) == os.path.realpath(run):
        return
    if folder.is_file() or RunFolder(folder).config_file.exists():
        raise UserError(f"{folder} is a file or another run; choose another folder with --out")
    check_like(folder / NUMBERS_FILE, lambda path: f'"run": {json.dumps(str(run))},' in path.read_text("utf-8"))
    check_like(folder / PAGE_FILE, partial(is_page, kind="gradients"))


def write_analysis(folder: Path, found: dict[str, Any]) -> None:
    """Write gradients.json, .png, .svg and .html into `folder`."""
    make_parent(folder / NUMBERS_FILE)
    write_atomic(folder / NUMBERS_FILE, json.dumps(found, indent=2) + "\n")
    drawings = []
    with matplotlib.rc_context(STYLE):
        save_figure(draw(found, SIGNS), folder / "gradients")
    for sign in SIGNS:  # one below the other on a phone; each with its own ids
        with matplotlib.rc_context(STYLE | {"svg.hashsalt": f"contune {sign}"}):
            svg = inline_svg(svg_text(draw(found, (sign,))), f"Gradients from {sign}s by similarity, by k1 and by k2")
        drawings.append(f'<figure class="drawing">{svg}</figure>')
    facts = [
        f"<strong>{escape(found['encoder'])}</strong> encoder after {found['step']:,} steps",
        f"{plural(found['num_batches'], 'batch', 'es')} of {found['embeddings_per_batch']:,} embeddings",
        f"τ = {found['temperature']:g}",
        f"positives: {escape(found['positives'])}",
        "1 seed",
    ]
    reading = (
        "Top: the weight of a pair in its anchor’s gradient by its similarity. A positive below zero is pushed away. "
        "Grey: how many pairs there are. Below: the same embeddings with other k1 or k2. Solid lines are hard pairs, "
        "dashed lines are easy ones."
    )
    share = f"{100 * found['hard_share']:g}\u202f%"
    meaning = (
        "Positives: the mean of |X − P + Y| over an anchor’s positives, then over anchors. Negatives: the mean of P. "
        f"Hard positives: the {share} with the lowest similarity, easy ones with the highest; for negatives the other "
        "way round. Pushed away: positives with a negative’s sign. Theorem 1 (equation 16): positives with a larger "
        "response under TCL than under SupCon, which is certain where X ≥ P."
    )
    shown = table("comparison settings", TABLE, rows(found), numbers=range(1, len(TABLE)))
    method, data = method_style(found["method"]).title, found["data"]
    answer = f'<p class="verdict">{escape(headline(found))}</p>'
    body = [
        header("gradient responses", f"{escape(method)} <span>on</span> {escape(data)}", facts, answer),
        section("figure", "Pull and push", reading, '<div class="drawings">', *drawings, "</div>"),
        section("numbers", "Numbers", meaning, f'<div class="scroll">{shown}</div>'),
    ]
    write_atomic(folder / PAGE_FILE, page("gradients", f"{method} on {data}: gradients · contune", "\n".join(body)))


def headline(found: dict[str, Any]) -> str:
    """What TCL changes for hard pairs, in one sentence."""
    changes = []
    for sign in SIGNS:
        tcl, supcon = (found[loss][f"hard_{sign}_gradient"] for loss in ("tcl", "supcon"))
        percent = 100 * (tcl / supcon - 1) if supcon else 0.0
        changes.append(f"{abs(percent):.0f} % {'less' if percent < 0 else 'more'}")
    return (
        f"With k1 = {found['tcl']['k1']:g} and k2 = {found['tcl']['k2']:g}, TCL pulls hard positives {changes[0]} than "
        f"SupCon and pushes hard negatives {changes[1]}, on the same embeddings."
    )


def rows(found: dict[str, Any]) -> list[tuple[str, ...]]:
    """SupCon, TCL at the k1 and k2 in question, then TCL at other values."""
    own = found["tcl"]
    others = [line for line in (*found["by_k1"], *found["by_k2"]) if (line["k1"], line["k2"]) != (own["k1"], own["k2"])]
    shown = []
    for line in (found["supcon"], own, *others):
        gradients = [line[f"{kind}{sign}_gradient"] for sign in SIGNS for kind in ("", "hard_", "easy_")]
        shares = [line.get(name) for name in ("pushed_away_share", "theorem1_share", "hard_theorem1_share")]
        shown.append((
            f"TCL  k1={line['k1']:g} k2={line['k2']:g}" if "k1" in line else "SupCon",
            *(f"{value:.3g}" for value in gradients),
            *("–" if share is None else f"{100 * share:.1f}" for share in shares),
        ))  # fmt: skip
    return shown


def draw(found: dict[str, Any], signs: Sequence[str]) -> Figure:
    """Responses by similarity, by k1 and by k2; a column for each sign."""
    figure = Figure(figsize=(4.1 * len(signs), 10.2), layout=ConstrainedLayoutEngine(h_pad=0.07), facecolor="white")
    for sign, (above, pairs, by_k1, by_k2) in zip(
        signs, figure.subplots(4, len(signs), height_ratios=(4, 1, 5, 5), squeeze=False).T, strict=True
    ):
        for axes in (above, pairs, by_k1, by_k2):
            quiet(axes, grid="y")
            axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.4g}"))
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        curve = found["by_similarity"][sign]
        what = "Pull towards a positive, X − P + Y" if sign == "positive" else "Push from a negative, P"
        above.set_title(what, loc="left", fontsize=10.5, color=INK)
        for name, width in (("supcon", 3.2), ("tcl", 1.5)):  # where both coincide, SupCon's shows on both sides
            title, color, marker = method_style(name)
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
    if len(signs) > 1:  # a page says this above the drawings
        batches = f"{plural(found['num_batches'], 'batch', 'es')} of {found['embeddings_per_batch']} embeddings"
        what = f"{method_style(found['method']).title} on {found['data']}, step {found['step']:,}, 1 seed: {batches}"
        figure.suptitle(f"{what}, τ = {found['temperature']:g}", fontsize=11, x=0.02, ha="left", color=MUTED)
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # keep this layout for every file
    return figure


def _draw_sweep(axes: Axes, found: dict[str, Any], sign: str, knob: str, other: str) -> None:
    """TCL's responses over k1 or k2, and SupCon's as levels; hard pairs solid, easy ones dashed."""
    tcl, supcon = method_style("tcl"), method_style("supcon")
    lines = found[f"by_{knob}"]
    axes.set_title(f"Mean gradient from {sign}s", loc="left", fontsize=10.5, color=INK)
    axes.set_xlabel(f"{knob}, dotted: {found['tcl'][knob]:g}  ({other} = {found['tcl'][other]:g})")
    for kind, dashes in (("hard", "-"), ("easy", "--")):
        name = f"{kind}_{sign}_gradient"
        axes.plot([line[knob] for line in lines], [line[name] for line in lines], color=tcl.color, linestyle=dashes,
                  linewidth=1.8, marker=tcl.marker, markersize=3.5, label=f"TCL, {kind}")  # fmt: skip
        label = f"SupCon, {kind}"
        axes.axhline(found["supcon"][name], color=supcon.color, linestyle=dashes, linewidth=1.5, label=label)
    if knob == "k1":
        axes.set_xscale("symlog", linthresh=1.0)
        axes.set_xlim(-0.2, 1.8 * max(1.0, *(line[knob] for line in lines)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
        axes.legend(frameon=False, fontsize=8.5)
    axes.axvline(found["tcl"][knob], color=MUTED, linewidth=0.8, linestyle=":")
    axes.set_ylim(bottom=0)
