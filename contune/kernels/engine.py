"""One autograd function over the backends: normalise, gather, compare, reduce, and all of it backwards.

A backend is two functions, `row_statistics` and `row_gradient`. Everything else that a loss on pairs needs, such
as candidates apart from the anchors or a batch that is spread over processes, is which rows and columns they get.
"""

from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from contune import distributed
from contune.distributed import Partition
from contune.errors import UserError
from contune.kernels.problem import Anchors, Knobs, Pairs, Statistics

UNIT_BOUND = 1.01
"""Similarities of embeddings that were normalised and then rounded are at most this."""


class Question(NamedTuple):
    """All that `pair_loss` is asked besides the embeddings."""

    knobs: Knobs
    normalize: bool
    reduction: str
    spread: bool
    """Whether the batch is spread over processes, each of which brings its own rows."""


def pair_loss(
    z_ND: Tensor,
    candidates_MD: Tensor | None,
    labels_N: Tensor | None,
    candidate_labels_M: Tensor | None,
    weights_NM: Tensor | None,
    question: Question,
    backend: ModuleType,
) -> tuple[Tensor, Tensor]:
    """The reduced loss, and for each anchor whether it has a positive."""
    result: tuple[Tensor, Tensor] = _PairLoss.apply(  # type: ignore[no-untyped-call]  # torch leaves it untyped
        z_ND, candidates_MD, labels_N, candidate_labels_M, weights_NM, question, backend
    )
    return result


class _PairLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        z_ND: Tensor,
        candidates_MD: Tensor | None,
        labels_N: Tensor | None,
        candidate_labels_M: Tensor | None,
        weights_NM: Tensor | None,
        question: Question,
        backend: ModuleType,
    ) -> tuple[Tensor, Tensor]:
        x_ND, norm_N1 = _prepared(z_ND, question.normalize)
        if candidates_MD is None:
            ctx.partition = distributed.partition(x_ND) if question.spread else Partition((len(x_ND),))
            y_MD, norm_M1 = ctx.partition.gather(x_ND), None
            pairs = _square_pairs(x_ND, labels_N, weights_NM, ctx.partition)
        else:
            y_MD, norm_M1 = _prepared(candidates_MD, question.normalize)
            pairs = Pairs(labels_R=labels_N, labels_C=candidate_labels_M, weights_RC=weights_NM)
        bound = UNIT_BOUND if question.normalize else None
        stats = backend.row_statistics(x_ND, y_MD, pairs, question.knobs, bound)
        usable_N = stats.total_R > 0
        loss, num_usable = _reduced(stats, usable_N, question)
        ctx.save_for_backward(x_ND, y_MD, norm_N1, norm_M1, num_usable, *stats)
        ctx.pairs, ctx.question, ctx.backend, ctx.bound = pairs, question, backend, bound
        ctx.dtypes = z_ND.dtype, None if candidates_MD is None else candidates_MD.dtype
        ctx.mark_non_differentiable(usable_N)
        return loss, usable_N

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise UserError("this backend has no second derivative; backend='dense' has one")
        x_ND, y_MD, norm_N1, norm_M1, num_usable, *saved = ctx.saved_tensors
        question, stats = ctx.question, Statistics(*saved)
        upstream = grads[0] / num_usable if question.reduction == "mean" else grads[0]
        anchors = Anchors.of(upstream.expand_as(stats.loss_R).to(x_ND.dtype), stats)
        shared = (ctx.pairs, question.knobs, ctx.bound)
        grad_y_MD: Tensor | None = None
        if ctx.dtypes[1] is None:
            columns = Anchors(*(ctx.partition.gather(part) for part in anchors))
            grad_x_ND = ctx.backend.row_gradient(x_ND, y_MD, *shared, rows=anchors, columns=columns)
            # Averaging over processes, as DistributedDataParallel does, then gives the gradient of one.
            grad_x_ND = grad_x_ND * len(ctx.partition.counts)
        else:
            grad_x_ND = ctx.backend.row_gradient(x_ND, y_MD, *shared, rows=anchors, columns=None)
            if ctx.needs_input_grad[1]:
                turned = (ctx.pairs.transposed(), question.knobs, ctx.bound)
                grad_y_MD = ctx.backend.row_gradient(y_MD, x_ND, *turned, rows=None, columns=anchors)
                grad_y_MD = _through_norm(grad_y_MD, y_MD, norm_M1).to(ctx.dtypes[1])
        grad_z_ND = _through_norm(grad_x_ND, x_ND, norm_N1).to(ctx.dtypes[0])
        return grad_z_ND, grad_y_MD, None, None, None, None, None


def _prepared(z_ND: Tensor, normalize: bool) -> tuple[Tensor, Tensor | None]:
    """Embeddings in float32 or better, of length 1 when asked, and the lengths they had."""
    x_ND = z_ND if z_ND.dtype == torch.float64 else z_ND.float()
    if not normalize:
        return x_ND, None
    norm_N1 = torch.linalg.vector_norm(x_ND, dim=1, keepdim=True).clamp(min=1e-12)
    return x_ND / norm_N1, norm_N1


def _through_norm(grad_x_ND: Tensor, x_ND: Tensor, norm_N1: Tensor | None) -> Tensor:
    """Back through x = z / |z|: what points along x is lost."""
    if norm_N1 is None:
        return grad_x_ND
    along_N1 = (grad_x_ND * x_ND).sum(dim=1, keepdim=True)
    return (grad_x_ND - x_ND * along_N1) / norm_N1


def _square_pairs(x_ND: Tensor, labels_N: Tensor | None, weights_NM: Tensor | None, partition: Partition) -> Pairs:
    self_N = torch.arange(partition.start, partition.start + len(x_ND), device=x_ND.device)
    if labels_N is None:
        return Pairs(weights_RC=weights_NM, self_R=self_N)
    return Pairs(labels_R=labels_N, labels_C=partition.gather(labels_N), self_R=self_N)


def _reduced(stats: Statistics, usable_N: Tensor, question: Question) -> tuple[Tensor, Tensor]:
    """The loss as asked for, and the number of usable anchors that `mean` divides by."""
    num_usable = usable_N.sum()
    if question.reduction == "none":
        return stats.loss_R, num_usable
    total = stats.loss_R.sum()
    if question.spread:
        total, num_usable = distributed.total(total), distributed.total(num_usable)
    num_usable = num_usable.clamp(min=1)
    return (total / num_usable if question.reduction == "mean" else total), num_usable
