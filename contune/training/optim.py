"""Optimizers by name, LARS among them, and learning rates as a pure function of the step."""

from collections.abc import Iterable, Mapping
from importlib import import_module
from math import cos, pi
from typing import Any

import torch
from torch import Tensor, nn

from contune import device

TRUST_COEFFICIENT, EPSILON = 0.02, 1e-8


def build_optimizer(
    module: nn.Module,
    name: str,
    *,
    lr: float,
    momentum: float,
    weight_decay: float,
    constant: tuple[str, ...] = (),
    encoder_rates: Mapping[Tensor, float] | None = None,
) -> torch.optim.Optimizer:
    """SGD and AdamW decay every parameter, as the authors do; LARS leaves one-dimensional ones alone.

    LARS has solo-learn's values, which the paper's self-supervised runs use: trust coefficient 0.02, ratio
    clipped at 1, no decay and no scaling of biases and batch-norm.

    constant: how the names of parameters begin whose rate stays.
    encoder_rates: the share of the rate for each parameter of the encoder, which then has groups of its own.
    """
    encoder_rates = encoder_rates or {}
    fused = next(module.parameters()).is_cuda
    alike: dict[tuple[bool, float, bool, float], list[nn.Parameter]] = {}
    for own_name, parameter in module.named_parameters():
        if parameter.requires_grad:
            decay = 0.0 if name == "lars" and parameter.dim() <= 1 else weight_decay
            own = own_name.startswith(constant), encoder_rates.get(parameter, 1.0), parameter in encoder_rates, decay
            alike.setdefault(own, []).append(parameter)
    settings: list[dict[str, Any]] = []
    for (is_constant, share, in_encoder, decay), parameters in alike.items():
        # On a GPU each group's rate is a tensor, so that a captured step sees it change.
        rate = torch.tensor(lr, device=parameters[0].device) if fused else lr
        flags = {"constant": is_constant, "share": share, "in_encoder": in_encoder}
        settings.append({"params": parameters, "lr": rate, "weight_decay": decay, **flags})
    if name == "lars":
        return Lars(settings, lr=lr, momentum=momentum)
    if name == "sgd":
        return torch.optim.SGD(settings, momentum=momentum, fused=fused)
    kind = torch.optim.AdamW if name == "adamw" else torch.optim.Adam
    return kind(settings, fused=fused, capturable=fused)


def layer_rates(encoder: nn.Module, decay: float) -> dict[Tensor, float]:
    """decay^n for the parameters n layers below the encoder's last one, by timm's order of layers."""
    timm_optim = import_module(f"{device.timm.__name__}.optim")
    groups = timm_optim.param_groups_layer_decay(encoder, layer_decay=decay)
    return {parameter: group["lr_scale"] for group in groups for parameter in group["params"]}


def set_learning_rate(optimizer: torch.optim.Optimizer, lr: float, *, frozen: bool = False) -> None:
    """Set the rate of all groups, except those whose rate is constant; of a frozen encoder to 0."""
    for group in optimizer.param_groups:
        if group.get("constant"):
            continue
        rate = 0.0 if frozen and group.get("in_encoder") else lr * group.get("share", 1.0)
        group["lr"] = group["lr"].fill_(rate) if isinstance(group["lr"], Tensor) else rate


def load_moments(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Restore momenta and counters. Rates and flags stay: those in a checkpoint belong to the device it was made on."""
    optimizer.load_state_dict({**state, "param_groups": optimizer.state_dict()["param_groups"]})


def learning_rate(
    step: int,
    *,
    schedule: str,
    lr: float,
    steps_per_epoch: int,
    epochs: int,
    warmup_epochs: float = 0.0,
    final_lr: float = 0.0,
) -> float:
    """The rate for a step, counted from 0.

    `cosine`: linear from nothing over the warm-up, at most half of the run, then a half cosine down to final_lr · lr.
    `cosine-epoch`: the authors' supervised form, stepped once an epoch and one epoch late, so that epochs 0
    and 1 both run at the full rate. `constant`: lr after the warm-up.
    """
    warmup = min(warmup_epochs, epochs / 2) * steps_per_epoch
    if step < warmup:
        return lr * (step + 1) / (warmup + 1)
    if schedule == "constant":
        return lr
    if schedule == "cosine-epoch":
        share = max(0, step // steps_per_epoch - 1) / epochs
    else:
        share = (step - warmup) / max(1.0, epochs * steps_per_epoch - warmup)
    return lr * (final_lr + (1 - final_lr) * (1 + cos(pi * share)) / 2)


class Lars(torch.optim.Optimizer):
    """LARS (You et al. 2017): SGD with momentum, scaled for each parameter of a group with weight decay.

    The update is that of timm's `Lars` with its trust ratio clipped: each weight matrix moves by at most its rate, and
    by less where its gradient is large compared with it. No operation waits for the device, so that a CUDA graph can
    capture a step. Groups without weight decay take plain SGD steps.
    """

    def __init__(self, params: Iterable[dict[str, Any]], *, lr: float | Tensor, momentum: float = 0.9) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # no closure
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            if not parameters:
                continue
            updates: list[Tensor] = [parameter.grad for parameter in parameters]
            if decay := group["weight_decay"]:
                # The trust ratio: trust · |w| / (|g| + decay · |w|), over the rate and at most 1; 1 if a norm is 0.
                w_P, g_P = norms_2P = torch.stack(torch._foreach_norm([*parameters, *updates])).view(2, -1)
                trust_P = TRUST_COEFFICIENT * w_P / (g_P.add(w_P, alpha=decay) + EPSILON)
                trust_P = torch.where(norms_2P.amin(dim=0) > 0, trust_P, 1.0)
                updates = list(torch._foreach_add(updates, parameters, alpha=decay))
                torch._foreach_mul_(updates, list((trust_P / group["lr"]).clamp(max=1.0).unbind()))
            for parameter in parameters:
                if "momentum_buffer" not in self.state[parameter]:
                    self.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
            # torch's fused SGD takes the rate from the device: m ← momentum · m + update, w ← w - lr · m.
            torch._fused_sgd_(
                parameters,
                updates,
                [self.state[parameter]["momentum_buffer"] for parameter in parameters] if group["momentum"] else [],
                weight_decay=0.0,
                momentum=group["momentum"],
                lr=group["lr"],
                dampening=0.0,
                nesterov=False,
                maximize=False,
                is_first_step=False,
            )
