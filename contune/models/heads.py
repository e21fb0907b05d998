"""Heads on top of an encoder."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from contune.errors import UserError
from contune.models.norm import BatchNorm


def projector(num_features: int, *, hidden: int | None = None, dim: int = 128) -> nn.Sequential:
    """The paper's projection network: "a MLP with one hidden layer", no batch-norm.

    hidden: its size; None takes the encoder's (512 for ResNet-18 and 34, 2048 for ResNet-50 and above).
    dim: size of the embedding that the loss sees, 128 in the paper's supervised runs.
    """
    hidden = num_features if hidden is None else hidden
    for name, size in (("projector_hidden", hidden), ("projector_dim", dim)):
        if size < 1:
            raise UserError(f"{name} must be 1 or more, got {size}; the paper uses the encoder's size and 128")
    return mlp([num_features, hidden, dim], norm=False)


def mlp(
    sizes: Sequence[int],
    *,
    norm: bool = True,
    activation: Callable[[], nn.Module] = lambda: nn.ReLU(inplace=True),
    last_norm: str = "none",
    bias: bool = True,
) -> nn.Sequential:
    """Linear layers of these sizes, with batch-norm (if `norm`) and an activation between them.

    last_norm: batch-norm after the last one: `none`, `affine`, or `plain`, which has no scale and shift of its own.
    bias: of linear layers that no batch-norm follows; one that it follows has none, since it would be subtracted.
    """
    layers: list[nn.Module] = []
    for size, next_size in pairwise(sizes[:-1]):
        layers.append(nn.Linear(size, next_size, bias=bias and not norm))
        if norm:
            layers.append(BatchNorm(next_size))
        layers.append(activation())
    layers.append(nn.Linear(sizes[-2], sizes[-1], bias=bias and last_norm == "none"))
    if last_norm != "none":
        layers.append(BatchNorm(sizes[-1], affine=last_norm == "affine"))
    return nn.Sequential(*layers)


def begin_small(head: nn.Module) -> None:
    """Linear layers begin as in a transformer: weights of about 0.02, biases of 0."""
    for layer in head.modules():
        if isinstance(layer, nn.Linear):
            nn.init.trunc_normal_(layer.weight, std=0.02)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)


class Prototypes(nn.Module):
    """Cosine similarities to K learnt directions: a linear layer whose rows have length 1."""

    def __init__(self, dim: int, num_prototypes: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(F.normalize(torch.randn(num_prototypes, dim), dim=1))

    def forward(self, z_ND: Tensor) -> Tensor:
        """(N, K), for z of any length; in the weights' precision also under autocast: temperatures are low."""
        with torch.autocast(z_ND.device.type, enabled=False):
            return F.normalize(z_ND.to(self.weight.dtype), dim=1) @ self.directions_KD.T

    @property
    def directions_KD(self) -> Tensor:
        return F.normalize(self.weight, dim=1)
