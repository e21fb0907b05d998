"""The batch that every contestant gets: one leaf of embeddings, labels in which every anchor has a positive."""

from dataclasses import dataclass

import torch
from torch import Tensor

from contune.errors import UserError

LOSSES = ("tcl", "supcon", "ntxent")
DTYPES = {name: getattr(torch, name) for name in ("float32", "float64", "bfloat16", "float16")}


@dataclass(frozen=True, kw_only=True)
class Batch:
    """z_ND is not of length 1: scaling it is part of everyone's work, so that all gradients are comparable."""

    z_ND: Tensor
    labels_N: Tensor


def make_batch(loss: str, num: int, dim: int, *, num_classes: int, device: torch.device, dtype: str) -> Batch:
    """Labels in random order, classes of equal size. NT-Xent gets sample ids, two stacked views of num / 2 samples.

    Classes drawn at random would leave anchors without a positive in small batches, which some peers turn into NaN.
    """
    generator = torch.Generator().manual_seed(num + dim)
    z_ND = torch.randn(num, dim, generator=generator).to(device, DTYPES[dtype]).requires_grad_()
    if loss == "ntxent":
        labels_N = torch.arange(num // 2).repeat(2)
    else:
        labels_N = (torch.arange(num) % min(num_classes, num // 2))[torch.randperm(num, generator=generator)]
    return Batch(z_ND=z_ND, labels_N=labels_N.to(device))


def check_request(sizes: list[int], dims: list[int], num_classes: int, dtype: str, seconds: float) -> None:
    for num in sizes:
        if num < 4 or num % 2:
            raise UserError(f"a batch of {num} cannot be two views of samples; give even sizes of 4 and above")
    for name, values in (("sizes", sizes), ("dims", dims)):
        if not values or min(values) < 1:
            raise UserError(f"{name} must hold numbers above 0, got {values}")
    if num_classes < 2:
        raise UserError(f"num_classes must be 2 or above, got {num_classes}; with one class there are no negatives")
    if dtype not in DTYPES:
        raise UserError(f"unknown dtype {dtype!r}; choose from {', '.join(DTYPES)}")
    if not seconds > 0:
        raise UserError(f"seconds must be above 0, got {seconds:g}")
