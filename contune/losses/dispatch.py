"""Which backend computes a pair loss, and what happens to the losses of the anchors."""

import warnings

import torch
from torch import Tensor

from contune import distributed
from contune.errors import UserError
from contune.kernels import LossSettings, autograd, chunked, dense, fused, normalized

BACKENDS = ("auto", "dense", "chunked", "fused")
PRECISIONS = ("fast", "high")
REDUCTIONS = ("mean", "sum", "none")
SMALL_MATRIX = 2**18
"""Entries of the similarity matrix, up to N = 512, for which writing it out is faster on a CPU."""
POSITIVE = "a positive; give two or more views of each sample, or batches with several samples of a class"
POSITIVE_AND_NEGATIVE = (
    "both a positive and a negative; give batches of two or more classes with several samples, or views, of each"
)
_sizes_seen: set[int] = set()


def pair_loss(
    z: Tensor,
    labels: Tensor | None,
    positives: Tensor | None,
    candidates: Tensor | None,
    candidate_labels: Tensor | None,
    settings: LossSettings,
    backend: str,
    whole_batch: bool,
) -> Tensor:
    """`tcl_loss` and its special cases, of checked inputs. whole_batch: of all processes."""
    spread = whole_batch and distributed.world_size() > 1
    learns_temperature = isinstance(settings.temperature, Tensor)
    num_pairs = z.shape[0] * (z if candidates is None else candidates).shape[0]
    plain = labels is not None and candidates is None and not spread and not learns_temperature
    if torch.compiler.is_compiling() and plain and backend != "dense" and num_pairs:
        words = f"{settings.variant} {settings.precision} {settings.reduction} {backend}"
        compiled_loss: Tensor = autograd.pair_loss_op(z, labels, list(settings[:3]), words, settings.normalize)[0]
        return compiled_loss

    learns_positives = positives is not None and positives.requires_grad and torch.is_grad_enabled()
    problem = None
    if backend == "fused":
        problem = fused.unsupported(z, positives, settings)
    if backend in ("chunked", "fused") and (learns_temperature or learns_positives):
        problem = f"has no gradient for {'the temperature' if learns_temperature else 'positives'}; 'dense' has one"
    elif spread and (backend == "dense" or learns_temperature):
        backend, problem = "dense", "works in one process only; a learnt temperature needs it"
    if problem is not None:
        raise UserError(f"backend={backend!r} {problem}. Use backend='auto'.")
    if backend == "auto" or not num_pairs:
        if learns_temperature:
            backend = "dense"
        elif num_pairs and z.is_cuda and fused.unsupported(z, positives, settings) is None:
            backend = "fused"
        elif learns_positives:
            backend = "dense"
        else:
            small = num_pairs <= (SMALL_MATRIX if z.device.type == "cpu" else 0)
            backend = "dense" if small and not spread else "chunked"

    weights = None
    if positives is not None:
        weights = positives.to(z.device, torch.float64 if z.dtype == torch.float64 else torch.float32)
    with torch.autocast(z.device.type, enabled=False):
        if backend == "dense":
            x_ND, _ = normalized(z, settings.normalize)
            y_MD = x_ND if candidates is None else normalized(candidates, settings.normalize)[0]
            if labels is not None:
                columns = labels if candidate_labels is None else candidate_labels
                weights = (labels[:, None] == columns[None, :]).to(x_ND.dtype)
            assert weights is not None
            itself = None if candidates is not None else torch.eye(len(z), dtype=torch.bool, device=z.device)
            loss_N, usable_N = dense.loss_per_anchor(x_ND @ y_MD.T, weights, itself, settings)
            return reduce_anchors(loss_N, usable_N, settings.reduction)
        # Training passes whole_batch=True: captured in a CUDA graph or not, its steps are to round alike.
        at_once = backend == "fused" and plain and not whole_batch and fused.is_small(z, settings)
        module = fused if backend == "fused" else chunked
        with torch.cuda.device_of(z):  # Triton launches on the current device, which may be another one
            loss, total_N = autograd.PairLoss.apply(  # type: ignore[no-untyped-call]  # torch leaves it untyped
                z, candidates, labels, candidate_labels, weights, settings, module, spread, at_once
            )
    warn_if_nothing_usable(total_N)
    result: Tensor = loss
    return result


def reduce_anchors(loss_N: Tensor, usable_N: Tensor, reduction: str, need: str = POSITIVE) -> Tensor:
    """`mean` over the usable anchors, `sum`, or `none`: one value per anchor.

    Unusable anchors have an exact 0 in `loss_N`. If all are unusable, the result is a 0 that still backpropagates (to
    zero gradients), with a warning.
    """
    warn_if_nothing_usable(usable_N, need)
    if reduction == "none":
        return loss_N
    if reduction == "sum":
        return loss_N.sum()
    return loss_N.sum() / usable_N.sum().clamp(min=1)


def warn_if_nothing_usable(total_N: Tensor, need: str = POSITIVE) -> None:
    """total_N: 0 for each anchor that lacks what it needs."""
    if torch.compiler.is_compiling():
        return
    num = total_N.shape[0]
    if total_N.device.type != "cpu":
        # Reading the answer makes the host wait for the device: once per batch size is enough to notice.
        if num in _sizes_seen or torch.cuda.is_current_stream_capturing():
            return
        _sizes_seen.add(num)
    if not total_N.any():
        warnings.warn(f"no anchor in this batch of {num} has {need}. The loss is 0.", stacklevel=2)
