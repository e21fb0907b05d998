"""Checks that all pair losses share, each with its sentence."""

from math import isfinite
from numbers import Real

import torch
from torch import Tensor

from contune.errors import UserError
from contune.kernels import lengths


def embeddings(z: Tensor, *, normalize: bool) -> Tensor:
    """`z`, checked, in float32 or better, of length 1 when asked."""
    check_embeddings("embeddings", z)
    z_ND = z.to(compute_dtype(z))
    return z_ND / lengths(z_ND) if normalize else z_ND


def compute_dtype(z: Tensor) -> torch.dtype:
    return torch.float64 if z.dtype == torch.float64 else torch.float32


def check_tensors(joined_by: str = "torch.cat", /, **values: object) -> None:
    """By the names that a person gave them; `joined_by` makes one tensor of several."""
    for name, value in values.items():
        if isinstance(value, Tensor):
            continue
        parts = value if isinstance(value, list | tuple) else ()
        way = "torch.as_tensor"
        if parts and all(isinstance(part, Tensor) for part in parts):
            way = joined_by if any(part.dim() for part in parts) else "torch.stack"
        raise UserError(f"{name} must be a tensor, got a {type(value).__name__}; {way}({name}) makes one")


def check_embeddings(name: str, z: Tensor) -> None:
    check_tensors(**{name: z})
    if z.dim() != 2:
        way = "stack the views: torch.cat([z1, z2])"
        if z.dim() == 3:
            labels = ", with labels.repeat(views)" if name == "embeddings" else ""
            way = f"if that is (batch, views, d), torch.cat({name}.unbind(1)) stacks the views{labels}"
        raise UserError(f"{name} must be (N, d), got shape {tuple(z.shape)}; {way}")
    if not z.is_floating_point():
        raise UserError(f"{name} must be floating point, got {z.dtype}")


def check_rows(name: str, z: Tensor, other_name: str, other: Tensor) -> None:
    """Two batches of embeddings that are compared row by row."""
    check_embeddings(name, z)
    check_embeddings(other_name, other)
    if z.shape != other.shape:
        raise UserError(
            f"{name} and {other_name} are compared row by row and must have one shape, "
            f"got {tuple(z.shape)} and {tuple(other.shape)}"
        )


def check_queue(queue: Tensor, z: Tensor) -> None:
    check_embeddings("queue", queue)
    if not len(queue) or queue.shape[1] != z.shape[1]:
        raise UserError(f"queue must hold embeddings of size {z.shape[1]}, one or more, got shape {tuple(queue.shape)}")


def check_positive(name: str, value: float) -> None:
    number = _number(name, value)
    if not (number > 0 and isfinite(number)):
        raise UserError(f"{name} must be above 0 and finite, got {number:g}")


def check_not_negative(name: str, value: float) -> None:
    number = _number(name, value)
    if not (number >= 0 and isfinite(number)):
        raise UserError(f"{name} must be 0 or above and finite, got {number:g}")


def _number(name: str, value: object) -> float:
    """Also of a tensor with one."""
    number = value.item() if isinstance(value, Tensor) and value.numel() == 1 else value
    if not isinstance(number, Real):
        raise UserError(f"{name} must be a number, got {value!r}")
    return float(number)
