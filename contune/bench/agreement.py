"""Equality before speed: value and gradient of each contestant against the dense form in float64."""

import math
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from contune.bench.batch import Batch, make_batch
from contune.bench.contestants import Contestant, reference_loss
from contune.bench.failure import Failure, attempt

CHECK_SIZE = 192
_CHECK_CLASSES = 48
TOLERANCES = {"float64": 1e-3, "float32": 1e-3, "float16": 3e-3, "bfloat16": 2e-2}
"""By the type of the embeddings: a gradient in bfloat16 is off by 1e-3 from its own rounding alone."""


@dataclass(frozen=True, kw_only=True)
class Check:
    name: str
    loss: str
    dim: int
    verdict: str
    """`equal`, `not asked`, `disagrees` or `failed`; the last two are not timed."""
    value_error: float | None = None
    gradient_error: float | None = None
    tolerance: float | None = None
    reason: str = ""

    @property
    def passed(self) -> bool:
        return self.verdict in ("equal", "not asked")


def check(contestant: Contestant, dim: int, *, num_classes: int, device: torch.device, dtype: str) -> Check:
    """Relative errors: of the value, and of the gradient in the L2 norm."""
    classes = min(num_classes, _CHECK_CLASSES)
    batch = make_batch(contestant.loss, CHECK_SIZE, dim, num_classes=classes, device=device, dtype=dtype)
    verdict = partial(Check, name=contestant.name, loss=contestant.loss, dim=dim)
    actual = attempt(lambda: value_and_gradient(contestant, batch), device)
    if isinstance(actual, Failure):
        return verdict(verdict="failed", reason=actual.reason)
    if contestant.timing_only:
        return verdict(verdict="not asked", reason=contestant.note)
    z_ND = batch.z_ND.detach().double().requires_grad_()
    expected = reference_loss(contestant.loss, z_ND, batch.labels_N)
    (expected_grad_ND,) = torch.autograd.grad(expected, z_ND)
    value_error, gradient_error = relative(actual[0], expected.detach()), relative(actual[1], expected_grad_ND)
    tolerance = TOLERANCES[dtype]
    equal = value_error <= tolerance and gradient_error <= tolerance  # never true of NaN
    return verdict(
        verdict="equal" if equal else "disagrees",
        value_error=_finite(value_error),
        gradient_error=_finite(gradient_error),
        tolerance=tolerance,
        reason="" if equal else f"disagrees: off by {value_error:.1e} in value, {gradient_error:.1e} in gradient",
    )


def value_and_gradient(contestant: Contestant, batch: Batch) -> tuple[Tensor, Tensor]:
    value = contestant.function(batch.z_ND, batch.labels_N)
    (grad_ND,) = torch.autograd.grad(value, batch.z_ND)
    return value.detach(), grad_ND


def relative(actual: Tensor, expected: Tensor) -> float:
    expected = expected.double()
    return float((actual.double() - expected).norm() / expected.norm())


def _finite(error: float) -> float | None:
    """JSON has no NaN."""
    return error if math.isfinite(error) else None
