"""Optimizers by name."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from contune.methods.base import Method, ParameterGroup
from contune.train.lars import Lars


def build_optimizer(
    module: nn.Module, name: str, *, lr: float, momentum: float, weight_decay: float
) -> torch.optim.Optimizer:
    """SGD and AdamW decay every parameter, as the authors do; LARS leaves one-dimensional ones alone.

    LARS has solo-learn's values, which the paper's self-supervised runs use: trust coefficient 0.02, ratio
    clipped at 1, no decay and no scaling of biases and batch-norm.
    """
    groups = module.parameter_groups() if isinstance(module, Method) else [ParameterGroup(_trained(module))]
    fused = groups[0].parameters[0].device.type == "cuda"
    if name == "lars":
        return Lars(_decay_groups(groups, lr, weight_decay), lr=lr, momentum=momentum)
    plain = [_group(group.parameters, group.constant, lr, weight_decay) for group in groups]
    if name == "adamw":
        return torch.optim.AdamW(plain, fused=fused, capturable=fused)
    if name == "adam":
        return torch.optim.Adam(plain, fused=fused, capturable=fused)
    return torch.optim.SGD(plain, momentum=momentum, fused=fused)


def set_learning_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Of all groups but those whose rate is constant."""
    for group in optimizer.param_groups:
        if group.get("constant"):
            continue
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(lr)
        else:
            group["lr"] = lr


def load_moments(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """What the steps so far left. Rates and flags stay its own: a checkpoint has those of the device it was made on."""
    optimizer.load_state_dict({**state, "param_groups": optimizer.state_dict()["param_groups"]})


def _trained(module: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


def _decay_groups(groups: Iterable[ParameterGroup], lr: float, weight_decay: float) -> list[dict[str, Any]]:
    """Weight matrices, which decay and are scaled, apart from biases and batch-norm, which do neither."""
    parts = [
        _group([p for p in group.parameters if (p.dim() > 1) == matrices], group.constant, lr, weight_decay * matrices)
        for group in groups
        for matrices in (True, False)
    ]
    return [part for part in parts if part["params"]]


def _group(parameters: list[nn.Parameter], constant: bool, lr: float, weight_decay: float) -> dict[str, Any]:
    # On a GPU the rate is a tensor, so that a recorded step sees it change, and each group's own.
    on_gpu = any(parameter.is_cuda for parameter in parameters)
    rate = torch.tensor(lr, device=parameters[0].device) if on_gpu else lr
    return {"params": parameters, "lr": rate, "weight_decay": weight_decay, "constant": constant}
