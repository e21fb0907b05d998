"""One autograd function over the backends: normalize, gather, compare, reduce, and all of it backwards.

kernels/__init__.py says what a backend is. Candidates apart from the anchors, or a batch that is spread over
processes, only change which rows and columns a backend gets.
"""

from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from contune import distributed
from contune.errors import UserError
from contune.kernels import LossSettings, Pairs, chunked, fused, without_autocast


class PairLoss(torch.autograd.Function):
    """The reduced loss, and for each anchor of all processes the total weight of its positives, 0 where it has none."""

    @staticmethod
    def forward(
        ctx: Any,
        z_ND: Tensor,
        candidates_MD: Tensor | None,
        labels_N: Tensor | None,
        candidate_labels_M: Tensor | None,
        weights_NM: Tensor | None,
        settings: LossSettings,
        backend: ModuleType,
        spread: bool,
        at_once: bool,
    ) -> tuple[Tensor, Tensor]:
        """spread: the batch is spread over processes, and each has its own rows. at_once: see `fused.is_small`."""
        ctx.dtype, ctx.at_once = z_ND.dtype, at_once
        ctx.set_materialize_grads(False)
        if at_once:
            assert labels_N is not None
            loss, total_N, grad_ND = fused.loss_and_gradient(z_ND, labels_N, settings)
            ctx.save_for_backward(grad_ND)
            ctx.mark_non_differentiable(total_N)
            return loss, total_N

        x_ND, norm_N = backend.prepare(z_ND, settings)
        ctx.partition = norm_M = None
        if candidates_MD is not None:
            y_MD, norm_M = backend.prepare(candidates_MD, settings)
            pairs = Pairs(x_ND, y_MD, labels_N, candidate_labels_M, weights_NM)
        elif spread:
            ctx.partition = distributed.partition(x_ND)
            y_MD, labels_M = ctx.partition.gather(x_ND), ctx.partition.gather(labels_N)
            pairs = Pairs(x_ND, y_MD, labels_N, labels_M, self_start=ctx.partition.start)
        else:
            pairs = Pairs(x_ND, x_ND, labels_N, labels_N, weights_NM, self_start=0)
        pairs = backend.arrange(pairs, settings)
        stats_4N = backend.statistics(pairs, settings)
        total_N = ctx.partition.gather(stats_4N[2]) if spread else stats_4N[2]
        if settings.reduction == "none":
            loss, num_usable = stats_4N[0].clone(), stats_4N.new_empty(())  # the caller may change it in place
        elif spread:
            loss = distributed.total(stats_4N[0].sum())
            num_usable = (total_N > 0).sum().clamp(min=1)
            loss = loss / num_usable if settings.reduction == "mean" else loss
        else:
            loss, num_usable = backend.reduce(stats_4N, settings.reduction)
        # Everything goes here, labels too, so that torch notices changes in place before the backward pass.
        *tensors, ctx.self_start = pairs
        ctx.save_for_backward(norm_N, norm_M, num_usable, stats_4N, *tensors)
        ctx.settings, ctx.backend = settings, backend
        ctx.mark_non_differentiable(total_N)
        return loss, total_N

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise UserError("this backend has no second derivative; backend='dense' has one")
        if ctx.at_once:
            (grad_ND,) = ctx.saved_tensors
            return (grad_ND * grads[0]).to(ctx.dtype), *[None] * 8
        with without_autocast(grads[0].device.type):
            return (*PairLoss._gradients(ctx, grads[0]), *[None] * 7)

    @staticmethod
    def _gradients(ctx: Any, upstream: Tensor) -> tuple[Tensor, Tensor | None]:
        norm_N, norm_M, num_usable, stats_4N, *tensors = ctx.saved_tensors
        pairs, settings, gradient = Pairs._make([*tensors, ctx.self_start]), ctx.settings, ctx.backend.gradient
        divisor = num_usable if settings.reduction == "mean" else torch.ones_like(num_usable)
        if ctx.partition is not None:
            # Averaging over processes, as DistributedDataParallel does, then gives the gradient of one process.
            upstream = upstream * len(ctx.partition.counts)
        anchors = (upstream.expand(stats_4N.shape[1]), stats_4N)
        if pairs.self_start is not None:
            columns = anchors
            if ctx.partition is not None:
                upstream_M, *stats = ctx.partition.gather(torch.stack([anchors[0], *stats_4N[1:]], dim=1)).unbind(1)
                columns = (upstream_M.contiguous(), torch.stack([stats[0], *stats]))
            return gradient(pairs, settings, anchors, columns, divisor, norm_N, ctx.dtype), None
        grad_z_ND = gradient(pairs, settings, anchors, None, divisor, norm_N, ctx.dtype)
        if not ctx.needs_input_grad[1]:
            return grad_z_ND, None
        turned = ctx.backend.arrange(pairs.transposed(), settings)
        return grad_z_ND, gradient(turned, settings, None, anchors, divisor, norm_M, ctx.dtype)


@torch.library.custom_op("contune::pair_loss", mutates_args=())
def pair_loss_op(
    z_ND: Tensor, labels_N: Tensor, numbers: list[float], words: str, normalize: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The loss of a plain batch as one operator, which `torch.compile` keeps whole instead of tracing into it.

    Returns the reduced loss, the number of usable anchors, and the anchors' statistics (4, N). `numbers` are
    temperature, k1, k2 and ε; `words` are kind, precision, reduction and backend.
    """
    settings, backend, pairs, _ = _plain_batch(z_ND, labels_N, numbers, words, normalize)
    stats_4N = backend.statistics(pairs, settings)
    loss, num_usable = backend.reduce(stats_4N, settings.reduction)
    return (stats_4N[0].clone() if settings.reduction == "none" else loss), num_usable, stats_4N


@pair_loss_op.register_fake
def _(z_ND: Tensor, labels_N: Tensor, numbers: Any, words: str, normalize: bool) -> tuple[Tensor, Tensor, Tensor]:
    num, dtype = z_ND.shape[0], torch.float64 if z_ND.dtype == torch.float64 else torch.float32
    loss = z_ND.new_empty(num if words.split()[2] == "none" else (), dtype=dtype)
    return loss, z_ND.new_empty((), dtype=dtype), z_ND.new_empty((4, num), dtype=dtype)


@torch.library.custom_op("contune::pair_loss_backward", mutates_args=())
def pair_loss_backward_op(
    grad: Tensor,
    z_ND: Tensor,
    labels_N: Tensor,
    num_usable: Tensor,
    stats_4N: Tensor,
    numbers: list[float],
    words: str,
    normalize: bool,
) -> Tensor:
    settings, backend, pairs, norm_N = _plain_batch(z_ND, labels_N, numbers, words, normalize)
    divisor = num_usable if settings.reduction == "mean" else torch.ones_like(num_usable)
    anchors = (grad.expand(len(z_ND)), stats_4N)
    result: Tensor = backend.gradient(pairs, settings, anchors, anchors, divisor, norm_N, z_ND.dtype)
    return result


@pair_loss_backward_op.register_fake
def _(grad: Tensor, z_ND: Tensor, *rest: Any) -> Tensor:
    return z_ND.new_empty(z_ND.shape)


def _plain_batch(
    z_ND: Tensor, labels_N: Tensor, numbers: list[float], words: str, normalize: bool
) -> tuple[LossSettings, ModuleType, Pairs, Tensor | None]:
    kind, precision, reduction, name = words.split()
    *tuned, epsilon = numbers
    settings = LossSettings._make([*tuned, kind, epsilon, precision, normalize, reduction])
    on_gpu = z_ND.is_cuda and fused.unsupported(z_ND, labels_N, settings) is None
    backend = fused if name == "fused" or (name == "auto" and on_gpu) else chunked
    x_ND, norm_N = backend.prepare(z_ND, settings)
    pairs = backend.arrange(Pairs(x_ND, x_ND, labels_N, labels_N, self_start=0), settings)
    return settings, backend, pairs, norm_N


def _save_inputs(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    z_ND, labels_N, *ctx.settings = inputs
    ctx.save_for_backward(z_ND, labels_N, *output[1:])


def _backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
    grad_z_ND = pair_loss_backward_op(grads[0].contiguous(), *ctx.saved_tensors, *ctx.settings)
    return (grad_z_ND, *[None] * (1 + len(ctx.settings)))


pair_loss_op.register_autograd(_backward, setup_context=_save_inputs)
