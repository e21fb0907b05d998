"""Optimizers by name."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from contune._vision import Lars


def build_optimizer(
    module: nn.Module, name: str, *, lr: float, momentum: float, weight_decay: float
) -> torch.optim.Optimizer:
    """SGD and AdamW decay every parameter, as the authors do; LARS leaves one-dimensional ones alone.

    LARS has solo-learn's values, which the paper's self-supervised runs use: trust coefficient 0.02, ratio
    clipped at 1, no decay and no scaling of biases and batch-norm.
    """
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    fused = all(parameter.device.type == "cuda" for parameter in parameters)
    # On a GPU the rate is a tensor, so that a recorded step sees it change.
    rate = torch.tensor(lr, device=parameters[0].device) if fused else lr
    if name == "adamw":
        return torch.optim.AdamW(parameters, lr=rate, weight_decay=weight_decay, fused=fused, capturable=fused)
    if name == "lars":
        lars: torch.optim.Optimizer = Lars(
            _decay_groups(parameters, weight_decay),
            lr=lr,
            momentum=momentum,
            trust_coeff=0.02,
            trust_clip=True,
        )
        return lars
    return torch.optim.SGD(parameters, lr=rate, momentum=momentum, weight_decay=weight_decay, fused=fused)


def set_learning_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(lr)
        else:
            group["lr"] = lr


def _decay_groups(parameters: Iterable[nn.Parameter], weight_decay: float) -> list[dict[str, Any]]:
    parameters = list(parameters)
    return [
        {"params": [p for p in parameters if p.dim() > 1], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.dim() <= 1], "weight_decay": 0.0},
    ]
