"""Which backend computes a pair loss, and the checks that all of them share."""

from math import isfinite

import torch
import torch.nn.functional as F
from torch import Tensor

from contune import distributed as ranks
from contune.errors import UserError, unknown
from contune.kernels import chunked, dense, engine, fused, operator
from contune.kernels.problem import Knobs
from contune.losses.pairs import check_pairs, itself, positive_weights
from contune.losses.reduction import REDUCTIONS, reduce_anchors, warn_if_nothing_usable

BACKENDS = ("auto", "dense", "chunked", "fused")
PRECISIONS = ("fast", "high")
SMALL_MATRIX = 2**18
"""Entries of the similarity matrix, up to N = 512, for which writing it out is faster on a CPU."""


def pair_loss(
    z: Tensor,
    labels: Tensor | None,
    *,
    positives: Tensor | None,
    candidates: Tensor | None,
    candidate_labels: Tensor | None,
    knobs: Knobs,
    normalize: bool,
    reduction: str,
    backend: str,
    distributed: bool,
) -> Tensor:
    """`tcl_loss` and its special cases, whose docstrings say what the arguments mean."""
    _check(z, labels, positives, candidates, candidate_labels, knobs, reduction, backend, distributed)
    spread = distributed and ranks.world_size() > 1
    labels, candidate_labels = (None if y is None else y.to(z.device, torch.int64) for y in (labels, candidate_labels))
    if (
        torch.compiler.is_compiling()
        and backend != "dense"
        and labels is not None
        and candidates is None
        and not spread
    ):
        compiled_loss: Tensor = operator.pair_loss(z, labels, *knobs, normalize, reduction, backend)[0]
        return compiled_loss
    nothing = not len(z) or (candidates is not None and not len(candidates))
    if backend == "auto" or nothing:
        backend = _choose(z, candidates, positives, knobs, spread)
    with torch.autocast(z.device.type, enabled=False):
        if backend == "dense":
            if spread:
                raise UserError("backend='dense' knows one process; use backend='auto' with distributed=True")
            return _dense(z, labels, positives, candidates, candidate_labels, knobs, normalize, reduction)
        weights_NM = None if positives is None else positives.to(z.device, _compute_dtype(z))
        question = engine.Question(knobs, normalize, reduction, spread)
        module = fused if backend == "fused" else chunked
        loss, total_N = engine.pair_loss(z, candidates, labels, candidate_labels, weights_NM, question, module)
        warn_if_nothing_usable(total_N)
        return loss


def embeddings(z: Tensor, *, normalize: bool) -> Tensor:
    """`z` in float32 or better, of length 1 when asked."""
    check_embeddings("embeddings", z)
    z_ND = z.to(_compute_dtype(z))
    return F.normalize(z_ND, dim=1) if normalize else z_ND


def check_embeddings(name: str, z: Tensor) -> None:
    if z.dim() != 2:
        raise UserError(f"{name} must be (N, d), got shape {tuple(z.shape)}; stack the views: torch.cat([z1, z2])")
    if not z.is_floating_point():
        raise UserError(f"{name} must be floating point, got {z.dtype}")


def check_positive(name: str, value: float) -> None:
    if not (value > 0 and isfinite(value)):
        raise UserError(f"{name} must be above 0 and finite, got {value:g}")


def check_not_negative(name: str, value: float) -> None:
    if not (value >= 0 and isfinite(value)):
        raise UserError(f"{name} must be 0 or above and finite, got {value:g}")


def _check(
    z: Tensor,
    labels: Tensor | None,
    positives: Tensor | None,
    candidates: Tensor | None,
    candidate_labels: Tensor | None,
    knobs: Knobs,
    reduction: str,
    backend: str,
    distributed: bool,
) -> None:
    check_positive("temperature", knobs.temperature)
    check_not_negative("k1", knobs.k1)
    check_not_negative("k2", knobs.k2)
    for kind, name, choices in (
        ("reduction", reduction, REDUCTIONS),
        ("backend", backend, BACKENDS),
        ("precision", knobs.precision, PRECISIONS),
    ):
        if name not in choices:
            raise unknown(kind, name, choices)
    check_embeddings("embeddings", z)
    if candidates is not None:
        check_embeddings("candidates", candidates)
        if candidates.shape[1] != z.shape[1] or candidates.dtype != z.dtype:
            raise UserError(
                f"candidates must have the embeddings' size and type, ({z.shape[1]}, {z.dtype}), "
                f"got ({candidates.shape[1]}, {candidates.dtype})"
            )
    if distributed and (positives is not None or candidates is not None):
        raise UserError("distributed=True goes by labels among the ranks' own embeddings; gather the rest yourself")
    check_pairs(len(z), labels, positives, None if candidates is None else len(candidates), candidate_labels)
    if backend == "fused":
        fused.check_supported(z, positives, knobs)


def _choose(z: Tensor, candidates: Tensor | None, positives: Tensor | None, knobs: Knobs, spread: bool) -> str:
    """The fastest that fits: kernels on a GPU; on a CPU the whole matrix while it is small, then blocks of it."""
    num_pairs = len(z) * len(z if candidates is None else candidates)
    if num_pairs and fused.is_supported(z, positives, knobs):
        return "fused"
    small = num_pairs <= (SMALL_MATRIX if z.device.type == "cpu" else 0)
    return "dense" if small and not spread else "chunked"


def _dense(
    z: Tensor,
    labels: Tensor | None,
    positives: Tensor | None,
    candidates: Tensor | None,
    candidate_labels: Tensor | None,
    knobs: Knobs,
    normalize: bool,
    reduction: str,
) -> Tensor:
    z_ND = embeddings(z, normalize=normalize)
    y_MD = z_ND if candidates is None else embeddings(candidates, normalize=normalize)
    weights_NM = positive_weights(z_ND, labels, positives, candidate_labels)
    ignored_NM = itself(z_ND) if candidates is None else None
    loss_N, usable_N = dense.loss_per_anchor(z_ND @ y_MD.T, weights_NM, ignored_NM, knobs)
    return reduce_anchors(loss_N, usable_N, reduction)


def _compute_dtype(z: Tensor) -> torch.dtype:
    return torch.float64 if z.dtype == torch.float64 else torch.float32
