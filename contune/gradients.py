"""`contune analyze`: how strongly positives pull and negatives push in a trained run, at many values of k1 and k2.

`analyze_run` embeds batches of the run's training data, `sweep` computes their gradient responses, and `write_analysis`
writes the numbers, a figure and a page.

Shapes: N embeddings, D embedding size, K pairs, B bins of similarity.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import chain, count, islice
from math import exp, isfinite
from pathlib import Path
from typing import Any

import matplotlib
import torch
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from contune.config import Config
from contune.console import plural, progress
from contune.data.sampler import mixed_generator
from contune.errors import UserError
from contune.files import write_atomic
from contune.losses.contrastive import Number, tcl_settings
from contune.losses.responses import HARD_SHARE, SUPCON, batch_block, means, response_sums
from contune.methods.pairwise import PairwiseMethod
from contune.models import load_encoder
from contune.report import plots
from contune.report.page import render
from contune.report.style import INK, MUTED, STYLE, inline_svg, method_style, quiet, run_style, save_figure
from contune.run import RunFolder
from contune.settings import split_assignment
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
COLUMNS = ("loss", "positives", "hard\npos.", "negatives", "hard\nneg.", "pushed\naway %", "theorem\n1 %")


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
    config, changes = folder.config(), dict(map(split_assignment, overrides))
    trained_with = config.method.name
    knobs = ("method.k1", "method.k2") if trained_with != "tcl" else ()
    tuned = {key: changes.pop(key) for key in knobs if key in changes}
    if config.override(changes).method.name != trained_with:
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
    usual = zip(knobs, (5000.0, 1.0) if method.settings.needs_labels else (1.0, 1.5), strict=False)
    tcl = {"method.name": "tcl", **dict(usual), **tuned}
    asked: Any = config.method.settings if trained_with == "tcl" else Config().override(tcl).method.settings
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
            for name, value in means(response_sums(block, kinds, tcl_settings(temperature, *pair, r))).items():
                total[name] += value.item()
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
    write_atomic(folder / NUMBERS_FILE, json.dumps(found, indent=2) + "\n")
    with matplotlib.rc_context(STYLE):
        figure = draw(found)
        save_figure(figure, folder / "gradients")
        drawing = inline_svg(figure, "Gradients from positives and negatives by similarity, by k1 and by k2")
    method = run_style(found["config"]["method"]).title
    values = {"found": found, "method": method, "drawing": drawing, "columns": COLUMNS, "rows": rows(found)}
    values["verdict"] = headline(found)
    text = render("gradients.html", "gradients", f"{method} on {found['data']}: gradients", **values)
    write_atomic(folder / "gradients.html", text)


def headline(found: dict[str, Any]) -> str:
    """What TCL changes for hard pairs, in one sentence."""
    changes = []
    for sign in SIGNS:
        tcl, supcon = (found[loss][f"hard_{sign}_gradient"] for loss in ("tcl", "supcon"))
        percent = round(100 * (tcl / supcon - 1)) if supcon and isfinite(tcl / supcon) else 0
        changes.append(f"{abs(percent)} % {'less than' if percent < 0 else 'more than'}" if percent else "as much as")
    k1, k2 = (found["tcl"][name] for name in ("k1", "k2"))
    return (
        f"On the same embeddings, with k1 = {plots.number(k1)} and k2 = {k2:g}, TCL pulls hard positives {changes[0]} "
        f"SupCon and pushes hard negatives {changes[1]} SupCon."
    )


def rows(found: dict[str, Any]) -> list[tuple[str, ...]]:
    """SupCon, TCL at the k1 and k2 in question, then TCL at other values."""
    own = found["tcl"]
    others = [line for line in (*found["by_k1"], *found["by_k2"]) if (line["k1"], line["k2"]) != (own["k1"], own["k2"])]
    shown = []
    for line in (found["supcon"], own, *others):
        gradients = [line[f"{kind}{sign}_gradient"] for sign in SIGNS for kind in ("", "hard_")]
        shares = [line.get(name) for name in ("pushed_away_share", "theorem1_share")]
        title = f"TCL k1={plots.number(line['k1'])} k2={line['k2']:g}" if "k1" in line else "SupCon"
        percent = ["–" if share is None else f"{100 * share:.1f}" for share in shares]
        shown.append((title, *(f"{value:.3g}" for value in gradients), *percent))
    return shown


def draw(found: dict[str, Any]) -> Figure:
    """Responses by similarity, by k1 and by k2; a column for positives and one for negatives.

    SupCon's are levels in the lower two rows. There hard pairs are solid, easy ones dashed.
    """
    figure = Figure(figsize=(8.2, 10.2), layout=ConstrainedLayoutEngine(h_pad=0.07), facecolor="white")
    columns = figure.subplots(4, 2, height_ratios=(4, 1, 5, 5)).T
    tcl, supcon = method_style("tcl"), method_style("supcon")
    for sign, (above, pairs, *sweeps) in zip(SIGNS, columns, strict=True):
        for axes in (above, pairs, *sweeps):
            quiet(axes, grid="y")
            axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
            axes.yaxis.set_major_formatter("{x:.4g}")
            axes.xaxis.set_major_formatter("{x:g}")
        curve = found["by_similarity"][sign]
        what = "Pull towards a positive, X − P + Y" if sign == "positive" else "Push from a negative, P"
        above.set_title(what, loc="left", fontsize=10.5, color=INK)
        for name, style, width in (("supcon", supcon, 3.2), ("tcl", tcl, 1.5)):  # where both coincide, both show
            look = {"color": style.color, "marker": style.marker, "markersize": 3.5, "linewidth": width}
            above.plot(curve["similarity"], curve[name], **look, label=style.title)
        above.legend(frameon=False, fontsize=8.5)
        above.sharex(pairs)
        above.tick_params(labelbottom=False)
        pairs.fill_between(curve["similarity"], curve["share"], step="mid", color=MUTED, alpha=0.45, linewidth=0)
        pairs.grid(visible=False)
        pairs.set(yticks=[], xlabel=f"similarity of anchor and {sign}")
        pairs.set_ylabel("pairs", rotation=0, ha="right", va="center", fontsize=9)
        for axes, knob, other in zip(sweeps, ("k1", "k2"), ("k2", "k1"), strict=True):
            lines = found[f"by_{knob}"]
            values = [line[knob] for line in lines]
            axes.set_title(f"Mean gradient from {sign}s", loc="left", fontsize=10.5, color=INK)
            own, fixed = (plots.number(found["tcl"][name]) for name in (knob, other))
            axes.set_xlabel(f"{knob}, dotted: {own}  ({other} = {fixed})")
            for kind, dashes in (("hard", "-"), ("easy", "--")):
                name = f"{kind}_{sign}_gradient"
                look = {"color": tcl.color, "marker": tcl.marker, "markersize": 3.5, "linewidth": 1.8}
                axes.plot(values, [line[name] for line in lines], **look, linestyle=dashes, label=f"TCL, {kind}")
                level = {"color": supcon.color, "linestyle": dashes, "linewidth": 1.5, "label": f"SupCon, {kind}"}
                axes.axhline(found["supcon"][name], **level)
            if knob == "k1":
                axes.set_xscale("symlog", linthresh=1.0)
                axes.set_xlim(-0.2, 1.8 * max(1.0, *values))
                axes.xaxis.set_major_formatter("{x:,g}")
                axes.legend(frameon=False, fontsize=8.5)
            axes.axvline(found["tcl"][knob], color=MUTED, linewidth=0.8, linestyle=":")
            axes.set_ylim(bottom=0)
    batches = f"{plural(found['num_batches'], 'batch', 'es')} of {found['embeddings_per_batch']} embeddings"
    what = f"{run_style(found['config']['method']).title} on {found['data']}, step {found['step']:,}, 1 seed: {batches}"
    figure.suptitle(f"{what}, τ = {found['temperature']:g}", fontsize=11, x=0.02, ha="left", color=MUTED)
    return figure
