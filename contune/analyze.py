"""`contune analyze`: the gradient responses of a trained run, on batches of its training data as it saw them."""

from collections.abc import Iterable, Iterator
from itertools import count, islice
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from contune.analysis.gradients.anchor_table import AnchorTable
from contune.analysis.gradients.sweep import K1_VALUES, K2_VALUES, Plan, sweep
from contune.analysis.gradients.written import Analysis
from contune.config import Config
from contune.console import progress
from contune.data import Dataset
from contune.data.augment import Params, begin_with_crops, crops_of
from contune.data.loader import Loader
from contune.data.seeding import mixed_generator
from contune.errors import UserError, unknown
from contune.kernels import LossSettings
from contune.methods.pairwise import PairwiseMethod
from contune.methods.tcl import TCL
from contune.models import load_encoder
from contune.run import RunFolder
from contune.settings import assign, check, split_assignment
from contune.train.checkpoint import CHECKPOINT, load_checkpoint
from contune.train.setup import (
    Setup,
    broken_image_hint,
    build_method,
    epoch_indices,
    local_batch,
    open_setup,
    view_policies,
)
from contune.train.trainer import AUGMENT_STREAM

NUM_BATCHES = 8
TUNED = ("method.k1", "method.k2")


@broken_image_hint()
def analyze_run(
    folder: RunFolder,
    overrides: list[str],
    *,
    k1_values: tuple[float, ...] = K1_VALUES,
    k2_values: tuple[float, ...] = K2_VALUES,
    num_batches: int = NUM_BATCHES,
) -> Analysis:
    """`sweep` of the run's embeddings, every anchor of them by itself, and what they are embeddings of.

    The batches are those that one more epoch would begin with, augmented as in training, through the encoder and
    projector of the newest checkpoint with batch-norm as in training. Whatever the run was trained with, TCL is asked
    at `method.k1` and `method.k2`: a run of TCL has its own, others get the paper's.
    """
    if num_batches < 1:
        raise UserError(f"--batches must be 1 or more, got {num_batches}")
    config = folder.config()
    trained_with = config.method.name
    pairs = [split_assignment(text) for text in overrides]
    _check_keys(pairs, folder.path, config)
    tuned = [pair for pair in pairs if pair[0] in TUNED and trained_with != "tcl"]
    config.override([f"{key}={value}" for key, value in pairs if (key, value) not in tuned])
    setup = open_setup(config, load_encoder(folder.path).spec if folder.encoder_file.exists() else None)
    method, step = _trained_method(setup, folder.path)
    knobs = _knobs(method, tuned)
    plan = Plan(knobs.temperature, knobs.k1, knobs.k2, k1_values, k2_values)
    plan.check()
    anchors = AnchorTable(knobs)
    found = sweep(_recorded(_embeddings(setup, method, num_batches), anchors), plan)
    about = {
        "run": str(folder.path),
        "method": trained_with,
        "data": setup.dataset.name,
        "encoder": setup.spec.encoder,
        "step": step,
        "seed": config.run.seed,
        "embeddings_per_batch": config.optim.batch_images * len(view_policies(config.augment)),
        "positives": "same label" if method.settings.needs_labels else "views of one image",
        **found,
        "by_anchor": anchors.spread(),
        "config": config.to_dict(),
    }
    return Analysis(about, anchors.table())


def _check_keys(pairs: list[tuple[str, str]], folder: Path, config: Config) -> None:
    for key, value in pairs:
        if key == "method.name" and value != config.method.name:
            raise UserError(f"{folder} was trained with {config.method.name}, so {key}={value} has no run")
    known = {*config.keys(), *TUNED}
    for key, _ in pairs:
        if key not in known:
            raise unknown("setting", key, known)


def _trained_method(setup: Setup, folder: Path) -> tuple[PairwiseMethod, int]:
    """With the projector, which only a checkpoint has."""
    method = build_method(setup)
    if not isinstance(method, PairwiseMethod) or method.knobs is None:
        raise UserError(
            f"{folder} was trained with {setup.config.method.name}, whose loss is no sum over positive and negative "
            "pairs as in the paper's lemmas; analyze a run of tcl, supcon or simclr"
        )
    state = load_checkpoint(folder, setup.device)
    if state is None:
        raise UserError(
            f"{folder} has no {CHECKPOINT}, which holds the projector; the same `contune train` again writes one"
        )
    try:
        method.load_state_dict(state["method"])
    except RuntimeError:
        raise UserError(
            f"the weights in {folder} do not fit these settings; leave model.*, method.projector_hidden and "
            "method.projector_dim as they were trained"
        ) from None
    return method.train(), int(state["step"])


def _knobs(method: PairwiseMethod, tuned: list[tuple[str, str]]) -> LossSettings:
    """TCL's at this run's temperature; without k1 and k2 of its own the paper's, with labels or without."""
    assert method.knobs is not None
    if isinstance(method, TCL):
        return method.knobs
    by_label = method.settings.needs_labels
    k1, k2 = (5000.0, 1.0) if by_label else (1.0, 1.5)
    settings = TCL.Settings(temperature=method.knobs.temperature, k1=k1, k2=k2)
    for key, value in tuned:
        assign(settings, key.removeprefix("method."), value, key)
    check(settings, "method.")
    return LossSettings(settings.temperature, settings.k1, settings.k2)


class _Batch(NamedTuple):
    """Embeddings of all views of B images, and who these are."""

    z_ND: Tensor
    groups_N: Tensor
    names: list[str]
    labels: list[str | None]


def _recorded(batches: Iterable[_Batch], anchors: AnchorTable) -> Iterator[tuple[Tensor, Tensor]]:
    """The batches as `sweep` takes them, each put into the table on its way."""
    for batch in batches:
        anchors.add(*batch)
        yield batch.z_ND, batch.groups_N


@torch.no_grad()
def _embeddings(setup: Setup, method: PairwiseMethod, num_batches: int) -> Iterator[_Batch]:
    config, loader = setup.config, setup.loader(setup.dataset.train, "train images")
    batch = local_batch(config, len(loader))
    augmenter = setup.augmenter(view_policies(config.augment))
    indices = list(islice(_rows(config, loader), num_batches))

    def drawn(number: int, device: torch.device) -> list[Params]:
        step = config.optim.epochs * (len(loader) // batch) + number
        return augmenter.draw(batch, mixed_generator(config.run.seed, AUGMENT_STREAM, step, device=device))

    crops = None
    if begin_with_crops(augmenter.policies):
        crops = (crops_of(augmenter.policies, drawn(number, torch.device("cpu"))) for number in range(num_batches))
    with progress("analyze", num_batches, unit="batches") as advance:
        for number, (images_BCHW, labels_B) in enumerate(loader.batches(iter(indices), crops)):
            views = augmenter.apply(images_BCHW, drawn(number, setup.device), setup.view_dtype)
            with setup.autocast():
                output = method(views, labels_B)
            z_ND, groups_N = output.state["z_ND"].float(), output.state["groups_N"]
            yield _Batch(z_ND, groups_N, *_who(setup.dataset, indices[number]))
            advance(number + 1, "")


def _rows(config: Config, loader: Loader) -> Iterator[Tensor]:
    """Which images each batch has, from the epoch after the last on."""
    for epoch in count(config.optim.epochs):
        yield from epoch_indices(config, len(loader), loader.labels_N, epoch)


def _who(dataset: Dataset, indices_B: Tensor) -> tuple[list[str], list[str | None]]:
    """Names and classes of training images."""
    names = [dataset.train.names[index] for index in indices_B.tolist()]
    if dataset.train.labels is None:
        return names, [None] * len(names)
    return names, [dataset.class_names[label] for label in dataset.train.labels[indices_B.cpu()].tolist()]
