"""The one path of a pair loss: check the input, choose the backend, compute, reduce."""

import math
import warnings
from contextlib import suppress
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from contune.distributed import world_size
from contune.errors import UserError, check_known
from contune.kernels import APART, LossSettings, autograd, chunked, dense, fused, normalized, without_autocast

CHOICES = {
    "backend": ("auto", "dense", "chunked", "fused"),
    "precision": ("fast", "high"),
    "reduction": ("mean", "sum", "none"),
}
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
    settings: LossSettings,
    *,
    positives: Tensor | None = None,
    candidates: Tensor | None = None,
    candidate_labels: Tensor | None = None,
    normalize: bool = True,
    reduction: str = "mean",
    backend: str = "auto",
    precision: str = "fast",
    distributed: bool = False,
) -> Tensor:
    """`tcl_loss` and its relatives, whose docstrings explain the arguments. settings: which loss."""
    settings = settings._replace(precision=precision, normalize=normalize, reduction=reduction)
    settings = check_settings(settings, backend)
    z, labels, positives, candidates, candidate_labels = check_pairs(z, labels, positives, candidates, candidate_labels)
    if distributed and (positives is not None or candidates is not None):
        raise UserError("distributed=True needs labels and no candidates. Gather positives and candidates yourself.")
    spread = distributed and world_size() > 1
    learned = "" if isinstance(settings.temperature, float) else "the temperature"
    groups = (labels, candidate_labels, positives)
    if torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in groups):
        learned = "positives"
    if spread and learned:
        raise UserError(f"distributed=True has no gradient for {learned}. Gather embeddings and labels yourself.")
    # A process without rows chooses as the others do, because all of them exchange embeddings.
    num_pairs = 1 if spread else z.shape[0] * (z if candidates is None else candidates).shape[0]
    plain = labels is not None and candidates is None and not spread and not learned
    if torch.compiler.is_compiling() and plain and backend != "dense" and num_pairs:
        words = f"{settings.kind} {settings.precision} {settings.reduction} {backend}"
        numbers = [*settings[:3], settings.epsilon]
        loss: Tensor = autograd.pair_loss_op(z, labels, numbers, words, settings.normalize)[0]
        return loss

    problem = fused.unsupported(z, labels, settings) if backend == "fused" else None
    if backend in ("chunked", "fused") and learned:
        problem = f"has no gradient for {learned}; 'dense' has one"
    elif spread and backend == "dense":
        problem = "works in one process only"
    if problem is not None:
        raise UserError(f"backend={backend!r} {problem}. Use backend='auto'.")
    if backend == "auto" or not num_pairs:
        small = num_pairs <= (SMALL_MATRIX if z.device.type == "cpu" else 0) and not spread
        on_gpu = z.is_cuda and fused.unsupported(z, labels, settings) is None
        backend = "dense" if learned or small else "fused" if on_gpu else "chunked"

    need = POSITIVE_AND_NEGATIVE if settings.kind in APART else POSITIVE
    with without_autocast(z.device.type):
        if backend == "dense":
            x_ND, _ = normalized(z, settings.normalize)
            y_MD = x_ND if candidates is None else normalized(candidates, settings.normalize)[0]
            others = labels if candidate_labels is None else candidate_labels
            weights = overlap(labels, others).to(x_ND.dtype) if positives is None else positives
            itself = None if candidates is not None else torch.eye(len(z), dtype=torch.bool, device=z.device)
            loss_N, usable_N = dense.loss_per_anchor(x_ND @ y_MD.T, weights, itself, settings)
            return reduce_anchors(loss_N, usable_N, settings.reduction, need)
        # Training passes distributed=True: captured in a CUDA graph or not, its steps are to round alike.
        at_once = backend == "fused" and plain and not distributed and fused.is_small(z, settings)
        module = fused if backend == "fused" else chunked
        with torch.cuda.device_of(z):  # Triton launches on the current device, which may be another one
            loss, total_N = autograd.PairLoss.apply(  # type: ignore[no-untyped-call]  # torch leaves it untyped
                z, candidates, labels, candidate_labels, positives, settings, module, spread, at_once
            )
    warn_if_nothing_usable(total_N, need)
    return loss


def check_settings(settings: LossSettings, backend: str = "auto") -> LossSettings:
    """The settings with numbers as floats. A temperature that requires a gradient stays a tensor."""
    words = {"backend": backend, "precision": settings.precision, "reduction": settings.reduction}
    for name in [name for name, value in words.items() if value not in CHOICES[name]]:
        check_known(name, words[name], CHOICES[name])
    temperature: Any = settings.temperature
    number = check_number("temperature", temperature, zero=False)
    learned = isinstance(temperature, Tensor) and temperature.requires_grad
    return settings._replace(
        temperature=temperature if learned else number,
        k1=check_number("k1", settings.k1),
        k2=check_number("k2", settings.k2),
        epsilon=check_number("epsilon", settings.epsilon),
    )


def check_number(name: str, value: object, *, zero: bool = True) -> float:
    """A finite number of at least 0, or above 0 without `zero`; also from a tensor with one element."""
    if type(value) is float and 0 < value < math.inf:
        return value
    if isinstance(value, Tensor) and value.requires_grad and name != "temperature":
        raise UserError(f"{name} is not differentiable. Pass {name}.item().")
    number = value.item() if isinstance(value, Tensor) and value.numel() == 1 else value
    if not isinstance(number, Real) or not 0 <= float(number) < math.inf or (number == 0 and not zero):
        raise UserError(f"{name} must be a finite number {'of at least' if zero else 'above'} 0, got {value!r}")
    return float(number)


def check_pairs(z: Any, labels: Any, positives: Any, candidates: Any = None, candidate_labels: Any = None) -> list[Any]:
    """The same, views (B, V, d) as rows (B·V, d) with labels and positives repeated, of types that fit on one device.

    Raises a UserError unless these are embeddings with either labels or positives, of shapes that fit.
    """
    z, labels, num_views = _check_rows("embeddings", z, "labels", labels)
    others, num_other_views = z, num_views
    if candidates is not None:
        others, candidate_labels, num_other_views = _check_rows(
            "candidates", candidates, "candidate_labels", candidate_labels
        )
        if others.shape[1] != z.shape[1]:
            raise UserError(f"candidates must have the embeddings' size {z.shape[1]}, got {others.shape[1]}")
    if (labels is None) == (positives is None):
        raise UserError("Pass either labels or positives, so that each anchor's positives are known.")
    if (candidate_labels is None) != (candidates is None or labels is None):
        raise UserError("Pass candidate_labels together with candidates and labels, and with no positives.")
    if candidate_labels is not None and candidate_labels.shape[1:] != labels.shape[1:]:
        found = f"{_described(labels)} and {_described(candidate_labels)}"
        raise UserError(f"labels and candidate_labels must be alike, got {found}")
    if positives is not None:
        if isinstance(positives, Tensor) and positives.dim() == 2 and max(num_views, num_other_views) > 1:
            positives = positives.repeat_interleave(num_views, dim=0).repeat_interleave(num_other_views, dim=1)
        shape = (len(z), len(others))
        if not isinstance(positives, Tensor) or positives.shape != shape:
            raise UserError(f"positives must be a bool mask or weights of shape {shape}, got {_described(positives)}")
        _check_weights("positives", positives)
    dtype = torch.promote_types(z.dtype, others.dtype)  # of a float32 queue and what autocast gives
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    label_type = wide if labels is not None and labels.dim() == 2 else torch.int64
    labels, candidate_labels = (
        None if x is None else x.to(z.device, label_type).contiguous() for x in (labels, candidate_labels)
    )
    positives = None if positives is None else positives.to(z.device, wide)
    return [z.to(dtype), labels, positives, None if candidates is None else others.to(dtype), candidate_labels]


def _check_rows(name: str, z: Any, label_name: str, labels: Any) -> tuple[Tensor, Tensor | None, int]:
    """Rows, their labels, and the number of views of a sample."""
    if not isinstance(z, Tensor) or z.dim() not in (2, 3) or not z.is_floating_point():
        raise UserError(
            f"{name} must be a floating point tensor of shape (N, d) or (B, views, d), got {_described(z)}. "
            "Stack views with torch.cat([z1, z2])."
        )
    if any(isinstance(x, Tensor) and (x.is_meta or x.is_nested or x.layout != torch.strided) for x in (z, labels)):
        raise UserError("Pass dense tensors. Sparse and nested ones, and those on device meta, cannot be compared.")
    num_views = z.shape[1] if z.dim() == 3 else 1
    if labels is not None:
        if not isinstance(labels, Tensor):
            with suppress(TypeError, ValueError, RuntimeError):  # of words
                labels = torch.as_tensor(labels, device=z.device)
        num_axes = labels.dim() if isinstance(labels, Tensor) else 0
        # Columns of class numbers, which as a matrix would weigh the classes. Only the CPU looks at the numbers.
        numbered = num_axes == 2 and not labels.is_floating_point()
        numbered = numbered and (labels.shape[1] == 1 or (_visible(labels) and bool((labels.long() > 1).any())))
        if num_axes not in (1, 2) or numbered or (num_axes == 1 and labels.is_floating_point()):
            raise UserError(
                f"{label_name} must be integers (N,) or a matrix (N, number of classes) of floats or of 0 and 1. "
                f"Got {_described(labels)}. Number class names by numpy.unique({label_name}, return_inverse=True)[1]."
            )
        if labels.shape[:1] != z.shape[:1]:
            rows = "samples, whatever their number of views" if z.dim() == 3 else "rows"
            times = "num_views, 1" if labels.dim() == 2 else "num_views"
            fix = "" if z.dim() == 3 else f" With several views use labels.repeat({times})."
            found = _described(labels)
            raise UserError(f"{label_name} must have one entry for each of the {len(z)} {rows}, got {found}.{fix}")
        if labels.dim() == 2:
            _check_weights(label_name, labels)
        labels = labels.repeat_interleave(num_views, dim=0) if z.dim() == 3 else labels
    return z.flatten(0, -2), labels, num_views


def _visible(values: Tensor) -> bool:
    """To look at them would make a GPU wait for the host, so only the CPU does."""
    return values.device.type == "cpu" and not torch.compiler.is_compiling()


def _check_weights(name: str, weights: Tensor) -> None:
    if weights.dtype.is_signed and _visible(weights):
        bad = ~(weights >= 0) | weights.isinf()
        if bad.any():
            raise UserError(f"{name} must be finite and at least 0, got {weights[bad][0].item():g}")


def overlap(labels_R: Tensor, labels_C: Tensor) -> Tensor:
    """Who is positive for whom, (R, C): equal labels, or for label matrices the products of their rows."""
    return labels_R @ labels_C.T if labels_R.dim() == 2 else labels_R[:, None] == labels_C[None, :]


def _described(value: object) -> str:
    return f"{value.dtype} of shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"


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
