"""The gradient responses of a trained run at many values of k1 and k2, on batches of its training data.

Shapes: N embeddings, D embedding size, K pairs, B bins of similarity.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import count, islice
from math import exp
from typing import Any

import torch
from torch import Tensor

from contune.console import progress
from contune.data.augment import Params
from contune.data.sampler import mixed_generator
from contune.errors import UserError
from contune.losses.contrastive import Number, tcl_settings
from contune.losses.dispatch import check_number
from contune.losses.responses import HARD_SHARE, SUPCON, batch_block, means, response_sums
from contune.methods.pairwise import PairwiseMethod
from contune.methods.tcl import TCL
from contune.models import load_encoder
from contune.run import RunFolder
from contune.settings import assign, check, split_assignment
from contune.train import setup as training
from contune.train.log import CHECKPOINT, load_checkpoint
from contune.train.setup import Setup, build_method, open_setup
from contune.train.trainer import AUGMENT_STREAM

K1_VALUES = (0.0, 1.0, 10.0, 100.0, 1000.0, 2000.0, 5000.0, 10000.0, 50000.0)
"""From SupCon's to the value at which the paper's accuracy falls."""
K2_VALUES = (1.0, 1.2, 1.5, 2.0, 3.0, 5.0)
NUM_BINS, FEWEST_PAIRS = 100, 20
"""Equal parts of the similarities from -1 to 1; those with fewer pairs are left out."""


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
    batch, augmenter = training.local_batch(config, len(loader)), setup.augmenter()
    epochs = (
        training.epoch_indices(config, len(loader), loader.labels_N, epoch) for epoch in count(config.optim.epochs)
    )
    indices = islice((indices_B for epoch in epochs for indices_B in epoch), num_batches)

    def draw(number: int, device: torch.device) -> list[Params]:
        step = config.optim.epochs * (len(loader) // batch) + number
        return augmenter.draw(batch, mixed_generator(config.run.seed, AUGMENT_STREAM, step, device=device))

    crops = (augmenter.crops(draw(number, torch.device("cpu"))) for number in range(num_batches))
    batches = loader.batches(indices, crops if augmenter.begins_with_crops else None)
    with progress("analyze", num_batches, unit="batch") as advance:
        for number, (images_BCHW, labels_B) in enumerate(batches):
            views = augmenter.apply(images_BCHW, draw(number, setup.device), setup.view_dtype)
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
    own = tcl_settings(temperature, k1, k2, r)
    k2 = own.k2
    pairs = [(k1, k2), *((each, k2) for each in k1_values), *((k1, each) for each in k2_values)]
    sums: dict[tuple[Number, float], defaultdict[str, float]] = {pair: defaultdict(float) for pair in pairs}
    log_k1 = 0.0
    bins_3B = {sign: torch.zeros(3, NUM_BINS, dtype=torch.float64) for sign in ("positive", "negative")}
    for num, (z_ND, groups_N) in enumerate(batches, start=1):  # noqa: B007  # counts them
        block = batch_block(z_ND, groups_N)
        kinds = block.kinds(HARD_SHARE)
        for pair, total in sums.items():
            found = means(response_sums(block, kinds, tcl_settings(temperature, *pair, r)))
            for name, value in zip(found, torch.stack(list(found.values())).tolist(), strict=True):
                total[name] += value
        log_k1_R = block.log_k1(own)
        log_k1 += float(log_k1_R[log_k1_R.isfinite()].mean()) if own.relative else 0.0
        supcon = tcl_settings(temperature, 0.0, 1.0, 0.0)
        for terms, row in ((block.coefficients(own), 1), (block.coefficients(supcon), 2)):
            for sign, values_RC in (("positive", -terms.positive_RC), ("negative", terms.N_RC)):
                sim_K = block.sim_RC[kinds[sign]]
                bins_K = ((sim_K + 1) / 2 * NUM_BINS).long().clamp(0, NUM_BINS - 1)
                bins_3B[sign][row] += bins_K.bincount(values_RC[kinds[sign]], minlength=NUM_BINS).cpu().double()
                bins_3B[sign][0] += bins_K.bincount(minlength=NUM_BINS).cpu().double() * (row == 1)

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
