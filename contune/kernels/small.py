"""A small batch on a GPU: its loss and gradient in two launches, both in the forward pass.

There the device waits for Python, so what counts is how often it is asked for something. The gradient of a sum or
mean is known but for one upstream number before anybody asks for it; `backward` multiplies by that number. A step
that is recorded as a CUDA graph does not wait for Python, and goes the usual way, which keeps the device busier.
"""

from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from contune.errors import UserError
from contune.kernels import fused
from contune.kernels.engine import NO_SECOND_DERIVATIVE, UNIT_BOUND, Question
from contune.kernels.problem import Knobs, exponent_is_safe

LARGEST_BATCH = 4096
"""Above it the device is the slower one again."""
ROW_BLOCK = 16


def fits(z_ND: Tensor, question: Question) -> bool:
    """For a batch by labels that `fused` supports: a sum or mean, of normalised embeddings, that will be derived."""
    num, dim = z_ND.shape
    return (
        0 < num <= LARGEST_BATCH
        and dim <= fused.RESIDENT_DIM
        and question.normalize
        and question.reduction != "none"
        and not question.spread
        and z_ND.requires_grad
        and torch.is_grad_enabled()
        and not (z_ND.is_cuda and torch.cuda.is_current_stream_capturing())
        and exponent_is_safe(num, question.knobs, UNIT_BOUND, torch.float32)
    )


def pair_loss(z_ND: Tensor, labels_N: Tensor, question: Question) -> tuple[Tensor, Tensor]:
    """As engine.pair_loss."""
    result: tuple[Tensor, Tensor] = _SmallLoss.apply(  # type: ignore[no-untyped-call]  # torch leaves it untyped
        z_ND, labels_N, question.knobs, question.reduction
    )
    return result


def loss_and_gradient(z_ND: Tensor, labels_N: Tensor, knobs: Knobs, reduction: str) -> tuple[Tensor, Tensor, Tensor]:
    """The sum or mean, for each anchor the number of its positives, and the gradient in float32."""
    num, dim = z_ND.shape
    options = _options(dim, knobs.precision, knobs.variant, knobs.k1 > 0)
    scale = fused.HALF_SCALE if knobs.precision == "fast" else 1.0
    to_log2 = fused.LOG2_E / knobs.temperature
    anchors_7N = torch.empty((7, num), device=z_ND.device)
    loss, grad_ND = torch.empty((), device=z_ND.device), torch.empty((num, dim), device=z_ND.device)
    _launch(
        "anchors_kernel", z_ND, labels_N,
        (anchors_7N, num, *z_ND.stride(), to_log2, knobs.temperature, knobs.k1, knobs.k2, scale), options,
    )  # fmt: skip
    _launch(
        "gradient_kernel", z_ND, labels_N,
        (anchors_7N, loss, grad_ND, num, *z_ND.stride(),
         to_log2, knobs.temperature, knobs.temperature * knobs.k1, knobs.k2, scale, reduction == "mean"), options,
    )  # fmt: skip
    return loss, anchors_7N[1], grad_ND


_compiled: dict[tuple[object, ...], Any] = {}
"""Kernels as Triton compiled them, by all that it looks at to choose one: that choice takes longer than a launch."""


def _launch(name: str, z_ND: Tensor, labels_N: Tensor, rest: tuple[object, ...], options: "_Options") -> None:
    """One program for each block of anchors."""
    aligned = (z_ND.data_ptr() | labels_N.data_ptr()) % 16 == 0  # what torch.empty hands out always is
    key = (name, z_ND.device, z_ND.dtype, z_ND.shape, z_ND.stride(), aligned, options.key, rest[-1] is True)
    grid = (-(-z_ND.shape[0] // ROW_BLOCK), 1, 1)
    known = _compiled.get(key)
    if known is None:
        from contune.kernels import small_tiles  # needs triton, which a CPU-only torch does not bring

        # The interpreter compiles nothing, and so gives nothing to remember.
        _compiled[key] = getattr(small_tiles, name)[grid](z_ND, labels_N, *rest, **options.by_name)
    else:
        known[grid](z_ND, labels_N, *rest, *options.constants)


class _SmallLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z_ND: Tensor, labels_N: Tensor, knobs: Knobs, reduction: str) -> tuple[Tensor, Tensor]:
        loss, total_N, grad_ND = loss_and_gradient(z_ND, labels_N, knobs, reduction)
        ctx.save_for_backward(grad_ND)
        ctx.dtype = z_ND.dtype
        ctx.mark_non_differentiable(total_N)
        ctx.set_materialize_grads(False)
        return loss, total_N

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise UserError(NO_SECOND_DERIVATIVE)
        (grad_ND,) = ctx.saved_tensors
        return (grad_ND * grads[0]).to(ctx.dtype), None, None, None


class _Options(NamedTuple):
    key: tuple[object, ...]
    by_name: dict[str, Any]
    constants: tuple[Any, ...]
    """Those that are arguments of the kernels, in their order."""


@cache
def _options(dim: int, precision: str, variant: str, pulls: bool) -> _Options:
    half = precision == "fast"
    constants = {
        "D": dim,
        "BD": fused.padded(dim),
        "BM": ROW_BLOCK,
        "BN": 64 if half and dim <= 128 else 32,
        "PULLS": pulls,
        "INNER": variant == "in",
        "HALF": half,
        "PRECISION": "tf32" if half else "tf32x3",
    }
    by_name = {**constants, "num_warps": 4, "num_stages": 2}
    return _Options((dim, precision, variant, pulls), by_name, tuple(constants.values()))
