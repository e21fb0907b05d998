"""Which backend computes a pair loss."""

from types import ModuleType

import torch
from torch import Tensor

from contune import distributed as ranks
from contune.errors import UserError, unknown
from contune.kernels import chunked, dense, engine, fused, operator, small
from contune.kernels.problem import Knobs
from contune.losses.checks import check_embeddings, check_not_negative, check_positive, compute_dtype, embeddings
from contune.losses.pairs import Batch
from contune.losses.reduction import REDUCTIONS, reduce_anchors, warn_if_nothing_usable

BACKENDS = ("auto", "dense", "chunked", "fused")
PRECISIONS = ("fast", "high")
SMALL_MATRIX = 2**18
"""Entries of the similarity matrix, up to N = 512, for which writing it out is faster on a CPU."""


def pair_loss(
    batch: Batch, knobs: Knobs, *, normalize: bool, reduction: str, backend: str, distributed: bool
) -> Tensor:
    """`tcl_loss` and its special cases, whose docstrings say what the arguments mean."""
    check_settings(knobs, reduction, backend)
    batch, knobs = _of_one_type(batch), _as_numbers(knobs)
    _check(batch, knobs, backend, distributed)
    labels, candidate_labels = (
        None if y is None else y.to(batch.z.device, torch.int64).contiguous()  # kernels read one after another
        for y in (batch.labels, batch.candidate_labels)
    )
    batch = batch._replace(labels=labels, candidate_labels=candidate_labels)
    spread = distributed and ranks.world_size() > 1
    plain = labels is not None and batch.candidates is None and not spread and not _is_learnt(knobs.temperature)
    question = engine.Question(knobs, normalize, reduction, spread)
    nothing_to_compare = not batch.z.shape[0] * batch.num_candidates
    if torch.compiler.is_compiling() and plain and backend != "dense" and not nothing_to_compare:
        compiled_loss: Tensor = operator.pair_loss(batch.z, labels, *knobs, normalize, reduction, backend)[0]
        return compiled_loss
    if backend == "auto" or nothing_to_compare:
        backend = _choose(batch, knobs, spread)
    if backend == "dense":
        if spread:
            learnt = ", and a number as temperature" if _is_learnt(knobs.temperature) else ""
            raise UserError(f"backend='dense' knows one process; use backend='auto' with distributed=True{learnt}")
        with torch.autocast(batch.z.device.type, enabled=False):
            return _dense(batch, knobs, normalize, reduction)
    with torch.cuda.device_of(batch.z):  # Triton launches on the current device, which may be another
        # contune's own training asks with distributed=True: recorded or not, its steps are to round alike.
        if backend == "fused" and plain and not distributed and labels is not None and small.fits(batch.z, question):
            loss, total_N = small.pair_loss(batch.z, labels, question)
        else:
            loss, total_N = _by_engine(batch, question, fused if backend == "fused" else chunked)
    warn_if_nothing_usable(total_N)
    return loss


def _by_engine(batch: Batch, question: engine.Question, module: ModuleType) -> tuple[Tensor, Tensor]:
    with torch.autocast(batch.z.device.type, enabled=False):
        weights_NM = None if batch.positives is None else batch.weights(compute_dtype(batch.z))
        return engine.pair_loss(
            batch.z, batch.candidates, batch.labels, batch.candidate_labels, weights_NM, question, module
        )


def check_settings(knobs: Knobs, reduction: str, backend: str) -> None:
    """What can be known to be wrong before there is a batch."""
    check_positive("temperature", knobs.temperature)
    check_not_negative("k1", knobs.k1)
    check_not_negative("k2", knobs.k2)
    for name, value in (("k1", knobs.k1), ("k2", knobs.k2)):
        if _is_learnt(value):
            raise UserError(f"{name} is a number to this loss and would get no gradient; give {name}.item()")
    for kind, name, choices in (
        ("reduction", reduction, REDUCTIONS),
        ("backend", backend, BACKENDS),
        ("precision", knobs.precision, PRECISIONS),
    ):
        if name not in choices:
            raise unknown(kind, name, choices)


def _is_learnt(value: object) -> bool:
    return isinstance(value, Tensor) and value.requires_grad


def _as_numbers(knobs: Knobs) -> Knobs:
    """Tensors too; a temperature that is learnt stays one."""
    temperature = knobs.temperature if _is_learnt(knobs.temperature) else float(knobs.temperature)
    return knobs._replace(temperature=temperature, k1=float(knobs.k1), k2=float(knobs.k2))


def _of_one_type(batch: Batch) -> Batch:
    """A float32 queue beside what an encoder under autocast gives: the better of the two."""
    z, candidates = batch.z, batch.candidates
    if not isinstance(candidates, Tensor) or not isinstance(z, Tensor) or candidates.dtype == z.dtype:
        return batch
    if not (z.is_floating_point() and candidates.is_floating_point()):
        return batch
    dtype = torch.promote_types(z.dtype, candidates.dtype)
    return batch._replace(z=z.to(dtype), candidates=candidates.to(dtype))


def _check(batch: Batch, knobs: Knobs, backend: str, distributed: bool) -> None:
    z, candidates = batch.z, batch.candidates
    check_embeddings("embeddings", z)
    if candidates is not None:
        check_embeddings("candidates", candidates)
        if candidates.shape[1] != z.shape[1]:
            raise UserError(f"candidates must have the embeddings' size {z.shape[1]}, got {candidates.shape[1]}")
    if distributed and (batch.positives is not None or candidates is not None):
        raise UserError("distributed=True goes by labels among the ranks' own embeddings; gather the rest yourself")
    batch.check()
    if backend == "fused":
        fused.check_supported(z, batch.positives, knobs)
    if backend == "chunked" and batch.learns_positives:
        raise UserError("backend='chunked' has no gradient for positives; backend='dense' has one, or detach them")
    if backend in ("chunked", "fused") and _is_learnt(knobs.temperature):
        raise UserError(f"backend={backend!r} has no gradient for the temperature; backend='dense' has one")


def _choose(batch: Batch, knobs: Knobs, spread: bool) -> str:
    """The fastest that fits: kernels on a GPU; on a CPU the whole matrix while it is small, then blocks of it."""
    if _is_learnt(knobs.temperature):
        return "dense"
    num_pairs = batch.z.shape[0] * batch.num_candidates
    if num_pairs and fused.is_supported(batch.z, batch.positives, knobs):
        return "fused"
    if batch.learns_positives:
        return "dense"
    small = num_pairs <= (SMALL_MATRIX if batch.z.device.type == "cpu" else 0)
    return "dense" if small and not spread else "chunked"


def _dense(batch: Batch, knobs: Knobs, normalize: bool, reduction: str) -> Tensor:
    z_ND = embeddings(batch.z, normalize=normalize)
    y_MD = z_ND if batch.candidates is None else embeddings(batch.candidates, normalize=normalize)
    weights_NM = batch.weights(z_ND.dtype)
    loss_N, usable_N = dense.loss_per_anchor(z_ND @ y_MD.T, weights_NM, batch.itself(), knobs)
    return reduce_anchors(loss_N, usable_N, reduction)
