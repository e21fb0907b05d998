"""LARS (You et al. 2017), with nothing in a step that asks the host, so that a CUDA graph can record it.

The update is that of timm's `Lars` with its trust ratio clipped: each weight matrix moves by at most its rate, and by
less where its gradient is large beside it.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from contune.device import HAS_TRITON
from contune.models.one_pass import sgd_

EPSILON = 1e-8
BLOCK = 4096
"""Numbers that a program of the kernel updates."""


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
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        momenta = [self._momentum_of(parameter) for parameter in parameters]
        if not group["weight_decay"]:
            sgd_(parameters, gradients, momenta, lr=group["lr"], momentum=group["momentum"])
        elif _has_kernel(parameters, gradients):
            _update_by_kernel(parameters, gradients, momenta, group)
        else:
            updates = torch._foreach_add(gradients, parameters, alpha=group["weight_decay"])
            torch._foreach_mul_(updates, _ratios(parameters, gradients, group))
            sgd_(parameters, list(updates), momenta, lr=group["lr"], momentum=group["momentum"])

    def _momentum_of(self, parameter: Tensor) -> Tensor:
        state = self.state[parameter]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
        momentum: Tensor = state["momentum_buffer"]
        return momentum


def _ratios(parameters: list[Tensor], gradients: list[Tensor], group: dict[str, Any]) -> list[Tensor]:
    """For each parameter trust · |w| / (|g| + decay · |w|), over the rate and at most 1; 1 where either is 0."""
    w_P, g_P = norms_2P = _norms(parameters, gradients)
    trust_P = group["trust_coefficient"] * w_P / (g_P.add(w_P, alpha=group["weight_decay"]) + EPSILON)
    trust_P = torch.where(norms_2P.amin(dim=0) > 0, trust_P, 1.0)
    return list((trust_P / group["lr"]).clamp(max=1.0).unbind())


def _norms(parameters: list[Tensor], gradients: list[Tensor]) -> Tensor:
    return torch.stack(torch._foreach_norm([*parameters, *gradients])).view(2, -1)


def _has_kernel(parameters: list[Tensor], gradients: list[Tensor]) -> bool:
    """Where memory holds the numbers of a weight and its gradient in the same order and without gaps."""
    return HAS_TRITON and all(
        weight.is_cuda and weight.dtype == grad.dtype == torch.float32 and _alike(weight, grad)
        for weight, grad in zip(parameters, gradients, strict=True)
    )


def _alike(weight: Tensor, grad: Tensor) -> bool:
    dense = weight.is_contiguous() or (weight.dim() == 4 and weight.is_contiguous(memory_format=torch.channels_last))
    return dense and weight.stride() == grad.stride()


def _update_by_kernel(
    parameters: list[Tensor], gradients: list[Tensor], momenta: list[Tensor], group: dict[str, Any]
) -> None:
    from contune.train.lars_tiles import update_kernel  # needs triton, which a CPU-only torch does not bring

    norms_2P = _norms(parameters, gradients)
    knobs = (group["momentum"], group["weight_decay"], group["trust_coefficient"], EPSILON)
    for number, (weight, grad, momentum) in enumerate(zip(parameters, gradients, momenta, strict=True)):
        size = weight.numel()
        update_kernel[(-(-size // BLOCK),)](
            weight, grad, momentum, norms_2P, group["lr"], number, len(parameters), size, *knobs, BLOCK=BLOCK
        )
