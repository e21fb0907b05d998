"""Updates of many tensors that read and write every number once."""

import torch
from torch import Tensor


def sgd_(
    parameters: list[Tensor],
    updates: list[Tensor],
    momenta: list[Tensor],
    *,
    lr: float | Tensor,
    momentum: float = 0.0,
) -> None:
    """m ← momentum · m + update, parameter ← parameter - lr · m."""
    _fused(parameters, updates, momenta if momentum else [], lr=lr, momentum=momentum)


def move_towards_(tensors: list[Tensor], goals: list[Tensor], share: Tensor) -> None:
    """tensor ← tensor - share · (tensor - goal): SGD that climbs along the goal with a decay of 1."""
    _fused(tensors, goals, [], lr=share, weight_decay=1.0, maximize=True)


def _fused(
    parameters: list[Tensor],
    gradients: list[Tensor],
    momenta: list[Tensor],
    *,
    lr: float | Tensor,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    maximize: bool = False,
) -> None:
    """torch's own, which takes its rate from the device, so that it can be recorded."""
    torch._fused_sgd_(
        parameters,
        gradients,
        momenta,
        weight_decay=weight_decay,
        momentum=momentum,
        lr=lr,
        dampening=0.0,
        nesterov=False,
        maximize=maximize,
        is_first_step=False,
    )
