"""Checks that all pair losses share, each with its sentence."""

from math import isfinite

import torch
from torch import Tensor

from contune.errors import UserError
from contune.kernels.lengths import lengths


def embeddings(z: Tensor, *, normalize: bool) -> Tensor:
    """`z`, checked, in float32 or better, of length 1 when asked."""
    check_embeddings("embeddings", z)
    z_ND = z.to(compute_dtype(z))
    return z_ND / lengths(z_ND) if normalize else z_ND


def compute_dtype(z: Tensor) -> torch.dtype:
    return torch.float64 if z.dtype == torch.float64 else torch.float32


def check_tensors(**values: object) -> None:
    """By the names that a person gave them."""
    for name, value in values.items():
        if isinstance(value, Tensor):
            continue
        parts = value if isinstance(value, list | tuple) else ()
        way = "torch.cat" if parts and all(isinstance(part, Tensor) for part in parts) else "torch.as_tensor"
        raise UserError(f"{name} must be a tensor, got a {type(value).__name__}; {way}({name}) makes one")


def check_embeddings(name: str, z: Tensor) -> None:
    check_tensors(**{name: z})
    if z.dim() != 2:
        raise UserError(f"{name} must be (N, d), got shape {tuple(z.shape)}; stack the views: torch.cat([z1, z2])")
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
    if not (value > 0 and isfinite(value)):
        raise UserError(f"{name} must be above 0 and finite, got {value:g}")


def check_not_negative(name: str, value: float) -> None:
    if not (value >= 0 and isfinite(value)):
        raise UserError(f"{name} must be 0 or above and finite, got {value:g}")
