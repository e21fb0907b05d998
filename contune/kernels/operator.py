"""The loss by labels as one registered operator, which `torch.compile` keeps whole instead of looking inside."""

from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from contune.kernels import chunked, fused
from contune.kernels.engine import UNIT_BOUND
from contune.kernels.problem import Anchors, Knobs, Pairs, Statistics


@torch.library.custom_op("contune::pair_loss", mutates_args=())
def pair_loss(
    z_ND: Tensor,
    labels_N: Tensor,
    temperature: float,
    k1: float,
    k2: float,
    variant: str,
    precision: str,
    normalize: bool,
    reduction: str,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor]:
    """The reduced loss, the number of usable anchors, and the anchors' statistics (4, N)."""
    knobs = Knobs(temperature, k1, k2, variant, precision)
    module = _module(backend, z_ND, knobs)
    x_ND, _ = module.prepared(z_ND, normalize, knobs)
    stats: Statistics = _plan(module, x_ND, labels_N, knobs, normalize).statistics()
    loss, num_usable = module.reduced(stats, reduction)
    if reduction == "none":
        loss = stats.loss_R.clone()
    return loss, num_usable, torch.stack(tuple(stats))


@pair_loss.register_fake
def _(z_ND: Tensor, labels_N: Tensor, *settings: Any) -> tuple[Tensor, Tensor, Tensor]:
    num, reduction = z_ND.shape[0], settings[-2]
    dtype = torch.float64 if z_ND.dtype == torch.float64 else torch.float32
    loss = z_ND.new_empty(num if reduction == "none" else (), dtype=dtype)
    return loss, z_ND.new_empty((), dtype=dtype), z_ND.new_empty((4, num), dtype=dtype)


@torch.library.custom_op("contune::pair_loss_backward", mutates_args=())
def pair_loss_backward(
    grad: Tensor,
    z_ND: Tensor,
    labels_N: Tensor,
    num_usable: Tensor,
    stats_4N: Tensor,
    temperature: float,
    k1: float,
    k2: float,
    variant: str,
    precision: str,
    normalize: bool,
    reduction: str,
    backend: str,
) -> Tensor:
    knobs = Knobs(temperature, k1, k2, variant, precision)
    module = _module(backend, z_ND, knobs)
    x_ND, norm_N = module.prepared(z_ND, normalize, knobs)
    divisor = num_usable if reduction == "mean" else torch.ones_like(num_usable)
    anchors = Anchors(grad.expand(len(z_ND)), divisor, *stats_4N[1:])
    result: Tensor = _plan(module, x_ND, labels_N, knobs, normalize).gradient(anchors, anchors, norm_N, z_ND.dtype)
    return result


@pair_loss_backward.register_fake
def _(grad: Tensor, z_ND: Tensor, *rest: Any) -> Tensor:
    return z_ND.new_empty(z_ND.shape)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    z_ND, labels_N, *ctx.settings = inputs
    _, num_usable, stats_4N = output
    ctx.save_for_backward(z_ND, labels_N, num_usable, stats_4N)


def _backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
    grad_z_ND = pair_loss_backward(grads[0].contiguous(), *ctx.saved_tensors, *ctx.settings)
    return (grad_z_ND, *[None] * (1 + len(ctx.settings)))


pair_loss.register_autograd(_backward, setup_context=_setup_context)


def _module(backend: str, z_ND: Tensor, knobs: Knobs) -> ModuleType:
    return fused if backend == "fused" or (backend == "auto" and fused.is_supported(z_ND, None, knobs)) else chunked


def _plan(module: ModuleType, x_ND: Tensor, labels_N: Tensor, knobs: Knobs, normalize: bool) -> Any:
    pairs = Pairs(labels_R=labels_N, labels_C=labels_N, self_start=0)
    return module.Plan(x_ND, x_ND, pairs, knobs, UNIT_BOUND if normalize else None)
