"""`contune analyze`: how strongly positives pull and negatives push in a trained run, at many values of k1 and k2.

`analyze_run` embeds batches of the run's training data, `sweep` computes their gradient responses, and `write_analysis`
writes the numbers, a figure and a page.

Shapes: N embeddings, D embedding size, K pairs, B bins of similarity.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import chain, count, islice
from math import exp
from pathlib import Path
from typing import Any

import matplotlib
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, MaxNLocator
from torch import Tensor

from contune.console import plural, progress
from contune.data.sampler import mixed_generator
from contune.errors import UserError
from contune.files import make_parent, write_atomic
from contune.losses.contrastive import Number, tcl_settings
from contune.losses.dispatch import check_number
from contune.losses.responses import HARD_SHARE, SUPCON, batch_block, means, response_sums
from contune.methods.pairwise import PairwiseMethod
from contune.methods.tcl import TCL
from contune.models import load_encoder
from contune.report.page import escape, header, page, section, table
from contune.report.style import INK, MUTED, STYLE, inline_svg, method_style, quiet, save_figure, svg_text
from contune.run import RunFolder
from contune.settings import assign, check, split_assignment
from contune.training.log import CHECKPOINT, load_checkpoint
from contune.training.setup import Setup, build_method, epoch_indices, local_batch, open_setup
from contune.training.trainer import AUGMENT_STREAM

K1_VALUES = (0.0, 1.0, 10.0, 100.0, 1000.0, 2000.0, 5000.0, 10000.0, 50000.0)
"""From SupCon's to the value at which the paper's accuracy falls."""
K2_VALUES = (1.0, 1.2, 1.5, 2.0, 3.0, 5.0)
NUM_BINS, FEWEST_PAIRS = 100, 20
"""Equal parts of the similarities from -1 to 1; those with fewer pairs are left out."""
SIGNS = ("positive", "negative")
NUMBERS_FILE = "gradients.json"
COLUMNS = (
    "loss", "positives", "hard pos.", "easy pos.", "negatives", "hard neg.", "easy neg.", "pushed away %",
    "theorem 1 %", "of hard %",
)  # fmt: skip


def analyze_run(
    folder: RunFolder,
    overrides: list[str],
    *,
    k1_values: tuple[float, ...] = K1_VALUES,
    k2_values: tuple[float, ...] = K2_VALUES,
    num_batches: int = 8,
) -> dict[str, Any]:
    """What gradients.json holds: `sweep` of a run's embeddings, and what they are embeddings of.

    The batches are those of one more epoch, augmented as in training, through the encoder and projector of the newest
    checkpoint in training mode. For a run of another method than TCL, `method.k1` and `method.k2` default to the
    paper's values: 5000 and 1 with labels, 1 and 1.5 without.
    """
    if num_batches < 1:
        raise UserError(f"--batches must be 1 or more, got {num_batches}")
    for name, number in [*(("k1", k1) for k1 in k1_values), *(("k2", k2) for k2 in k2_values)]:
        check_number(name, number)
    config = folder.config()
    trained_with = config.method.name
    pairs = [split_assignment(text) for text in overrides]
    tuned = [pair for pair in pairs if pair[0] in ("method.k1", "method.k2") and trained_with != "tcl"]
    config.override([f"{key}={value}" for key, value in pairs if (key, value) not in tuned])
    if config.method.name != trained_with:
        raise UserError(f"{folder.path} was trained with {trained_with}; method.name cannot be changed")
    setup = open_setup(config, load_encoder(folder.path).spec if folder.encoder_file.exists() else None)
    method = build_method(setup)
    if not isinstance(method, PairwiseMethod) or method.knobs is None:
        raise UserError(f"{folder.path} was trained with {trained_with}; analyze a run of tcl, supcon or simclr")
    state = load_checkpoint(folder.path, setup.device)  # the only file with the projector
    if state is None:
        raise UserError(f"{folder.path} has no {CHECKPOINT}; repeat its `contune train` to write one")
    try:
        method.load_state_dict(state["method"])
    except RuntimeError:
        raise UserError(f"the weights in {folder.path} do not fit these settings; leave model.* unchanged") from None
    usual = (5000.0, 1.0) if method.settings.needs_labels else (1.0, 1.5)
    asked = method.settings if isinstance(method, TCL) else TCL.Settings(k1=usual[0], k2=usual[1])
    for key, value in tuned:
        assign(asked, key.removeprefix("method."), value, key)
    check(asked, "method.")
    batches = _embeddings(setup, method.train(), num_batches)
    return {
        "run": str(folder.path),
        "method": trained_with,
        "data": setup.dataset.name,
        "encoder": setup.spec.encoder,
        "step": int(state["step"]),
        "seed": config.run.seed,
        "embeddings_per_batch": config.optim.batch_images * config.augment.views,
        "positives": "same label" if method.settings.needs_labels else "views of one image",
        **sweep(batches, method.knobs.temperature, asked.k1, asked.k2, k1_values, k2_values, asked.r),
        "config": config.to_dict(),
    }


@torch.no_grad()
def _embeddings(setup: Setup, method: PairwiseMethod, num_batches: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Embeddings of all views of a batch, and their groups."""
    config, loader = setup.config, setup.loader(setup.dataset.train, "train images")
    batch, augmenter = local_batch(config, len(loader)), setup.augmenter()
    epochs = (epoch_indices(config, len(loader), loader.labels_N, epoch) for epoch in count(config.optim.epochs))
    indices = islice(chain.from_iterable(epochs), num_batches)

    def generator(number: int, device: torch.device | str = "cpu") -> torch.Generator:
        step = config.optim.epochs * (len(loader) // batch) + number
        return mixed_generator(config.run.seed, AUGMENT_STREAM, step, device=device)

    batches = loader.batches(indices, augmenter.crops_of_steps(batch, map(generator, range(num_batches))))
    with progress("analyze", num_batches, unit="batch") as advance:
        for number, (images_BCHW, labels_B) in enumerate(batches):
            drawn = augmenter.draw(batch, generator(number, setup.device))
            views = augmenter.apply(images_BCHW, drawn, setup.view_dtype)
            with setup.autocast():
                output = method(views, labels_B)
            yield output.state["z_ND"].float(), output.state["groups_N"]
            advance(number + 1, "")


@torch.no_grad()
def sweep(
    batches: Iterable[tuple[Tensor, Tensor]],
    temperature: float,
    k1: Number,
    k2: Number,
    k1_values: Iterable[float] = K1_VALUES,
    k2_values: Iterable[float] = K2_VALUES,
    r: float = 0.3,
) -> dict[str, Any]:
    """Mean responses over batches of embeddings and groups, whose members are positives of each other.

    Returns plain numbers: `tcl` at k1 and k2, `supcon`, `by_k1` at this k2 and `by_k2` at this k1, each with the names
    of `losses.responses.responses`; and `by_similarity`, the mean coefficients of pairs of one similarity. Batches of
    more than 2,048 embeddings are measured on evenly spaced anchors. For `auto`, k1 in the result is the geometric mean
    over anchors, and the responses are those of each anchor's own.
    """
    own, supcon = tcl_settings(temperature, k1, k2, r), tcl_settings(temperature, 0.0, 1.0, 0.0)
    k2 = own.k2
    pairs = [(k1, k2), *((each, k2) for each in k1_values), *((k1, each) for each in k2_values)]
    sums: dict[tuple[Number, float], defaultdict[str, float]] = {pair: defaultdict(float) for pair in pairs}
    log_k1 = 0.0
    bins_3B = {sign: torch.zeros(3, NUM_BINS, dtype=torch.float64) for sign in SIGNS}
    for num, (z_ND, groups_N) in enumerate(batches, start=1):  # noqa: B007  # counts them
        block = batch_block(z_ND, groups_N)
        kinds = block.kinds(HARD_SHARE)
        for pair, total in sums.items():
            found = means(response_sums(block, kinds, tcl_settings(temperature, *pair, r)))
            for name, value in zip(found, torch.stack(list(found.values())).tolist(), strict=True):
                total[name] += value
        log_k1 += float(block.log_k1(own)[block.positive_RC.any(dim=1)].mean())
        tcl_terms, supcon_terms = block.coefficients(own), block.coefficients(supcon)
        for sign in SIGNS:
            pairs_RC = kinds[sign]
            bins_K = ((block.sim_RC[pairs_RC] + 1) / 2 * NUM_BINS).long().clamp(0, NUM_BINS - 1)
            weights_K = [torch.ones_like(bins_K)]
            for terms in (tcl_terms, supcon_terms):
                weights_K.append((-terms.positive_RC if sign == "positive" else terms.N_RC)[pairs_RC])
            bins_3B[sign] += torch.stack([bins_K.bincount(w, minlength=NUM_BINS).cpu().double() for w in weights_K])

    def number(k1: Number) -> float:
        return exp(log_k1 / num) if k1 == "auto" else k1

    def line(k1: Number, k2: float) -> dict[str, float]:
        found = {name: total / num for name, total in sums[k1, k2].items() if not name.startswith(SUPCON)}
        return {"k1": number(k1), "k2": k2, **found}

    by_similarity = {}
    for sign, (pairs_B, tcl_B, supcon_B) in bins_3B.items():
        filled = (pairs_B >= FEWEST_PAIRS).nonzero()[:, 0]
        by_similarity[sign] = {
            "similarity": [round((place + 0.5) * 2 / NUM_BINS - 1, 6) for place in filled.tolist()],
            "share": (pairs_B / pairs_B.sum().clamp(min=1))[filled].tolist(),
            "tcl": (tcl_B / pairs_B)[filled].tolist(),
            "supcon": (supcon_B / pairs_B)[filled].tolist(),
        }
    plain = {name: total / num for name, total in sums[k1, k2].items() if name.startswith(SUPCON)}
    return {
        "temperature": temperature,
        "hard_share": HARD_SHARE,
        "num_batches": num,
        "tcl": line(k1, k2),
        "supcon": {name.removeprefix(SUPCON): value for name, value in plain.items()},
        "by_k1": [line(each, k2) for each in sorted({*k1_values, k1}, key=number)],
        "by_k2": [line(k1, each) for each in sorted({*k2_values, k2})],
        "by_similarity": by_similarity,
    }


def write_analysis(folder: Path, found: dict[str, Any]) -> None:
    """Write gradients.json, .png, .svg and .html into `folder`."""
    make_parent(folder / NUMBERS_FILE)
    write_atomic(folder / NUMBERS_FILE, json.dumps(found, indent=2) + "\n")
    with matplotlib.rc_context(STYLE):
        figure = draw(found)
        save_figure(figure, folder / "gradients")
        drawing = inline_svg(svg_text(figure), "Gradients from positives and negatives by similarity, by k1 and by k2")
    facts = [
        f"<strong>{escape(found['encoder'])}</strong> encoder after {found['step']:,} steps",
        f"{plural(found['num_batches'], 'batch', 'es')} of {found['embeddings_per_batch']:,} embeddings",
        f"τ = {found['temperature']:g}",
        f"positives: {escape(found['positives'])}",
        "1 seed",
    ]
    reading = (
        "Top: the weight of a pair in its anchor’s gradient by its similarity. A positive below zero is pushed away. "
        "Gray: how many pairs there are. Below: the same embeddings with other k1 or k2. Solid lines are hard pairs, "
        "dashed lines are easy ones."
    )
    share = f"{100 * found['hard_share']:g}\u202f%"
    meaning = (
        "Positives: the mean of |X − P + Y| over an anchor’s positives, then over anchors. Negatives: the mean of P. "
        f"Hard positives: the {share} with the lowest similarity, easy ones with the highest; for negatives the other "
        "way round. Pushed away: positives with a negative’s sign. Theorem 1 (equation 16): positives with a larger "
        "response under TCL than under SupCon, which is certain where X ≥ P."
    )
    shown = table("comparison settings", COLUMNS, rows(found), numbers=range(1, len(COLUMNS)))
    method, data = method_style(found["method"]).title, found["data"]
    answer = f'<p class="verdict">{escape(headline(found))}</p>'
    body = [
        header("gradient responses", f"{escape(method)} <span>on</span> {escape(data)}", facts, answer),
        section("figure", "Pull and push", reading, f'<figure class="drawing scroll">{drawing}</figure>'),
        section("numbers", "Numbers", meaning, f'<div class="scroll">{shown}</div>'),
    ]
    text = page("gradients", f"{method} on {data}: gradients · contune", "\n".join(body))
    write_atomic(folder / "gradients.html", text)


def headline(found: dict[str, Any]) -> str:
    """What TCL changes for hard pairs, in one sentence."""
    changes = []
    for sign in SIGNS:
        tcl, supcon = (found[loss][f"hard_{sign}_gradient"] for loss in ("tcl", "supcon"))
        percent = 100 * (tcl / supcon - 1) if supcon else 0.0
        size = f"{abs(percent):.0f} % {'less than' if percent < 0 else 'more than'}"
        changes.append("as much as" if size.startswith("0 ") else size)
    return (
        f"On the same embeddings, with k1 = {found['tcl']['k1']:g} and k2 = {found['tcl']['k2']:g}, TCL pulls hard "
        f"positives {changes[0]} SupCon and pushes hard negatives {changes[1]} SupCon."
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


def draw(found: dict[str, Any]) -> Figure:
    """Responses by similarity, by k1 and by k2; a column for positives and one for negatives."""
    figure = Figure(figsize=(8.2, 10.2), layout=ConstrainedLayoutEngine(h_pad=0.07), facecolor="white")
    columns = figure.subplots(4, 2, height_ratios=(4, 1, 5, 5)).T
    for sign, (above, pairs, by_k1, by_k2) in zip(SIGNS, columns, strict=True):
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
    batches = f"{plural(found['num_batches'], 'batch', 'es')} of {found['embeddings_per_batch']} embeddings"
    what = f"{method_style(found['method']).title} on {found['data']}, step {found['step']:,}, 1 seed: {batches}"
    figure.suptitle(f"{what}, τ = {found['temperature']:g}", fontsize=11, x=0.02, ha="left", color=MUTED)
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
