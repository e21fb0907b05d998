"""One autograd function over the backends: normalise, gather, compare, reduce, and all of it backwards.

What a backend is, problem.py says. Everything else that a loss on pairs needs, such as candidates apart from the
anchors or a batch that is spread over processes, is which rows and columns it gets.
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
NO_SECOND_DERIVATIVE = "this backend has no second derivative; backend='dense' has one"


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
    """The reduced loss, and for each anchor the weight of its positives, 0 where it has none."""
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
        x_ND, norm_N = backend.prepared(z_ND, question.normalize, question.knobs)
        if candidates_MD is None:
            ctx.partition = distributed.partition(x_ND) if question.spread else Partition((len(x_ND),))
            y_MD, norm_M = ctx.partition.gather(x_ND), None
            pairs = _square_pairs(labels_N, weights_NM, ctx.partition)
        else:
            y_MD, norm_M = backend.prepared(candidates_MD, question.normalize, question.knobs)
            pairs = Pairs(labels_R=labels_N, labels_C=candidate_labels_M, weights_RC=weights_NM)
        plan = backend.Plan(x_ND, y_MD, pairs, question.knobs, _bound(question))
        stats = plan.statistics()
        loss, num_usable = _reduced(stats, question, backend)
        ctx.save_for_backward(x_ND, y_MD, norm_N, norm_M, num_usable, *stats)
        ctx.pairs, ctx.plan, ctx.question, ctx.backend = pairs, plan, question, backend
        ctx.dtype, ctx.square = z_ND.dtype, candidates_MD is None
        ctx.mark_non_differentiable(stats.total_R)
        return loss, stats.total_R

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise UserError(NO_SECOND_DERIVATIVE)
        with torch.autocast(grads[0].device.type, enabled=False):
            return _PairLoss._backward(ctx, grads)

    @staticmethod
    def _backward(ctx: Any, grads: tuple[Tensor, ...]) -> tuple[Tensor | None, ...]:
        x_ND, y_MD, norm_N, norm_M, num_usable, *saved = ctx.saved_tensors
        question, stats = ctx.question, Statistics(*saved)
        upstream, divisor = grads[0], num_usable if question.reduction == "mean" else torch.ones_like(num_usable)
        grad_y_MD: Tensor | None = None
        if ctx.square:
            if question.spread:
                # Averaging over processes, as DistributedDataParallel does, then gives the gradient of one.
                upstream = upstream * len(ctx.partition.counts)
            anchors = columns = Anchors(upstream.expand_as(stats.loss_R), divisor, *stats[1:])
            if question.spread:
                upstream, *rest = (ctx.partition.gather(part) for part in (anchors.upstream, *anchors[2:]))
                columns = Anchors(upstream, divisor, *rest)
            grad_z_ND = ctx.plan.gradient(anchors, columns, norm_N, ctx.dtype)
        else:
            anchors = Anchors(upstream.expand_as(stats.loss_R), divisor, *stats[1:])
            grad_z_ND = ctx.plan.gradient(anchors, None, norm_N, ctx.dtype)
            if ctx.needs_input_grad[1]:
                turned = ctx.backend.Plan(y_MD, x_ND, ctx.pairs.transposed(), question.knobs, _bound(question))
                grad_y_MD = turned.gradient(None, anchors, norm_M, ctx.dtype)
        return grad_z_ND, grad_y_MD, None, None, None, None, None


def _bound(question: Question) -> float | None:
    return UNIT_BOUND if question.normalize else None


def _square_pairs(labels_N: Tensor | None, weights_NM: Tensor | None, partition: Partition) -> Pairs:
    if labels_N is None:
        return Pairs(weights_RC=weights_NM, self_start=partition.start)
    return Pairs(labels_R=labels_N, labels_C=partition.gather(labels_N), self_start=partition.start)


def _reduced(stats: Statistics, question: Question, backend: ModuleType) -> tuple[Tensor, Tensor]:
    """The loss as asked for, and the number of usable anchors that `mean` divides by."""
    if question.reduction == "none":
        return stats.loss_R.clone(), stats.loss_R.new_empty(())  # a person may change it; the backward pass has its own
    if not question.spread:
        result: tuple[Tensor, Tensor] = backend.reduced(stats, question.reduction)
        return result
    total = distributed.total(stats.loss_R.sum())
    num_usable = distributed.total((stats.total_R > 0).sum()).clamp(min=1)
    return (total / num_usable if question.reduction == "mean" else total), num_usable
