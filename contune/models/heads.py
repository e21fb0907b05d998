"""The parts of a method besides its encoder: heads, prototypes, momentum copies and queues.

Shapes: N rows, B rows of this process, D embedding size, K prototypes or places in a queue.
"""

import copy
from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from contune import distributed
from contune.errors import UserError


class BatchNorm(nn.BatchNorm1d):
    """nn.BatchNorm1d of (N, D) with the statistics of the global batch, on CPUs as on GPUs."""

    def forward(self, x_ND: Tensor) -> Tensor:
        if not self.training or distributed.world_size() == 1:
            return super().forward(x_ND)
        start = distributed.rank() * len(x_ND)
        return super().forward(distributed.gather(x_ND, sum_gradients=True))[start : start + len(x_ND)]


def mlp(
    sizes: Sequence[int],
    *,
    norm: bool = True,
    activation: Callable[[], nn.Module] = lambda: nn.ReLU(inplace=True),
    last_norm: bool = False,
    bias: bool = True,
) -> nn.Sequential:
    """Linear layers of these sizes, with batch-norm (if `norm`) and an activation between them.

    last_norm: whether the last layer has batch-norm too, without a learned scale and shift.
    bias: whether linear layers have a bias. A layer before batch-norm never has one: batch-norm would subtract it.
    """
    layers: list[nn.Module] = []
    for size, next_size in pairwise(sizes[:-1]):
        layers.append(nn.Linear(size, next_size, bias=bias and not norm))
        if norm:
            layers.append(BatchNorm(next_size))
        layers.append(activation())
    layers.append(nn.Linear(sizes[-2], sizes[-1], bias=bias and not last_norm))
    if last_norm:
        layers.append(BatchNorm(sizes[-1], affine=False))
    return nn.Sequential(*layers)


class Prototypes(nn.Module):
    """Cosine similarities to K learned directions: a linear layer with L2-normalized rows.

    For the first `frozen_epochs` epochs it keeps its initial values, whatever the optimizer does to them.
    """

    first: Tensor

    def __init__(self, dim: int, num_prototypes: int, frozen_epochs: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(F.normalize(torch.randn(num_prototypes, dim), dim=1))
        self.frozen_epochs = frozen_epochs
        self.register_buffer("first", self.weight.detach().clone())

    def forward(self, z_ND: Tensor) -> Tensor:
        """(N, K). In the precision of the weights also under autocast, because temperatures are low."""
        with torch.autocast(z_ND.device.type, enabled=False):
            return F.normalize(z_ND.to(self.weight.dtype), dim=1) @ F.normalize(self.weight, dim=1).T

    @torch.no_grad()
    def after_step(self, epoch: Tensor) -> None:
        """Called after each optimizer step; epoch: how many epochs are completed, on the device."""
        torch.where(epoch < self.frozen_epochs, self.first, self.weight, out=self.weight)


def ema_copy(module: nn.Module) -> nn.Module:
    """A copy without gradients, for `ema_update`: BYOL's target, MoCo's key networks, DINO's teacher."""
    return copy.deepcopy(module).requires_grad_(False)


@torch.no_grad()
def ema_update(copies: nn.Module, leaders: nn.Module, momentum: Tensor) -> None:
    """copy ← momentum · copy + (1 - momentum) · leader, for all parameters.

    The copy keeps its own running statistics of batch-norm, because it sees its own batches.
    """
    own, goals = ([parameter.detach() for parameter in module.parameters()] for module in (copies, leaders))
    # SGD that climbs along the goal with a decay of 1. It touches every number once and reads its rate from the
    # device, so that a CUDA graph can capture it.
    torch._fused_sgd_(
        own,
        goals,
        [],
        weight_decay=1.0,
        momentum=0.0,
        lr=(1 - momentum).float(),
        dampening=0.0,
        nesterov=False,
        maximize=True,
        is_first_step=False,
    )


class Queue(nn.Module):
    """The last K embeddings of earlier batches, random unit vectors at first.

    The position is a tensor, so that a captured CUDA graph advances it too.
    """

    values_KD: Tensor
    position: Tensor
    num_seen: Tensor

    def __init__(self, num_places: int, dim: int) -> None:
        super().__init__()
        self.register_buffer("values_KD", F.normalize(torch.randn(num_places, dim), dim=1))
        self.register_buffer("position", torch.zeros((), dtype=torch.int64))
        self.register_buffer("num_seen", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def push(self, rows_BD: Tensor) -> None:
        """Replaces the oldest rows with the rows of every process, in the same order on each of them."""
        rows = distributed.gather(rows_BD.detach()).to(self.values_KD.dtype)
        num, places = len(rows), len(self.values_KD)
        if num > places:
            raise UserError(f"a batch of {num} does not fit a queue of {places}. Raise method.queue_size.")
        at = (self.position + torch.arange(num, device=rows.device)) % places
        self.values_KD.index_copy_(0, at, rows)
        self.position.add_(num).remainder_(places)
        self.num_seen.add_(num).clamp_(max=places)
