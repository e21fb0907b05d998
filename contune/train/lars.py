"""LARS (You et al. 2017), with nothing in a step that asks the host, so that a CUDA graph can record it.

The update is that of timm's `Lars` with its trust ratio clipped: each weight matrix moves by at most its rate, and by
less where its gradient is large beside it.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from contune.models.one_pass import sgd_

EPSILON = 1e-8


class Lars(torch.optim.Optimizer):
    """SGD with momentum, scaled for each parameter of a group that decays; the others take plain SGD steps."""

    def __init__(
        self,
        params: Iterable[dict[str, Any]],
        *,
        lr: float | Tensor,
        momentum: float = 0.9,
        trust_coefficient: float = 0.02,
    ) -> None:
        defaults = {"lr": lr, "momentum": momentum, "weight_decay": 0.0, "trust_coefficient": trust_coefficient}
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # no closure
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            if parameters:
                self._update(parameters, group)

    def _update(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        lr, decay = group["lr"], group["weight_decay"]
        updates = [parameter.grad for parameter in parameters if parameter.grad is not None]
        if decay:
            ratios = _ratios(parameters, updates, group)
            updates = list(torch._foreach_add(updates, parameters, alpha=decay))
            torch._foreach_mul_(updates, ratios)
        sgd_(parameters, updates, [self._momentum_of(p) for p in parameters], lr=lr, momentum=group["momentum"])

    def _momentum_of(self, parameter: Tensor) -> Tensor:
        state = self.state[parameter]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
        momentum: Tensor = state["momentum_buffer"]
        return momentum


def _ratios(parameters: list[Tensor], gradients: list[Tensor], group: dict[str, Any]) -> list[Tensor]:
    """For each parameter trust · |w| / (|g| + decay · |w|), over the rate and at most 1; 1 where either is 0."""
    norms_2P = torch.stack(torch._foreach_norm([*parameters, *gradients])).unflatten(0, (2, -1))
    w_P, g_P = norms_2P
    trust_P = group["trust_coefficient"] * w_P / (g_P.add(w_P, alpha=group["weight_decay"]) + EPSILON)
    trust_P = torch.where(norms_2P.amin(dim=0) > 0, trust_P, 1.0)
    return list((trust_P / group["lr"]).clamp(max=1.0).unbind())
