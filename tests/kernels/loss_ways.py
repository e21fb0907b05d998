"""The ways to compute a loss on pairs, for tests that hold on all of them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from loss_cases import DEVICE
from torch import Tensor

from contune.losses import supcon_loss, tcl_loss

LossOf = Callable[..., Tensor]


class Way(NamedTuple):
    """To compute a loss."""

    backend: str
    dtype: torch.dtype
    precision: str = "high"

    def __str__(self) -> str:
        return f"{self.backend}-{self.precision}-{self.dtype}".replace("torch.", "")

    def tensor(self, values: Tensor) -> Tensor:
        return values.to(DEVICE if self.backend == "fused" else "cpu")

    @property
    def settings(self) -> dict[str, Any]:
        return {"backend": self.backend, "precision": self.precision}


DENSE, CHUNKED = Way("dense", torch.float64), Way("chunked", torch.float64)
FUSED = [Way("fused", torch.float32), Way("fused", torch.float32, "fast")]
WAYS = [DENSE, Way("dense", torch.float32), CHUNKED, Way("chunked", torch.float32), *FUSED]
CLOSED = WAYS[2:]
"""The ones with a gradient in closed form."""
every_way = pytest.mark.parametrize("way", WAYS, ids=str)
closed_ways = pytest.mark.parametrize("way", CLOSED, ids=str)
quiet = pytest.mark.filterwarnings("ignore::RuntimeWarning")
"""Triton's interpreter computes with numpy, which warns of infinities and NaN where a GPU does not."""


def random(num: int, dim: int = 6, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(num, dim, generator=torch.Generator().manual_seed(num), dtype=torch.float64).to(dtype)


def supcon_in(z: Tensor, labels: Tensor, **settings: Any) -> Tensor:
    return supcon_loss(z, labels, variant="in", **settings)


def solved(
    way: Way, z: Tensor, labels: Tensor, *, loss_of: LossOf = tcl_loss, **settings: Any
) -> tuple[Tensor, Tensor]:
    """Loss and gradient of its sum, in float64."""
    leaf = way.tensor(z.to(way.dtype)).detach().requires_grad_()
    settings = way.settings | settings
    loss = loss_of(leaf, way.tensor(labels), **settings)
    (grad,) = torch.autograd.grad(loss.sum(), leaf)
    return loss.detach().double().cpu(), grad.double().cpu()
