"""The loss under `torch.compile`: one operator that the compiler keeps whole, with the numbers of the plain call."""

import pytest
import torch
from loss_ways import CHUNKED, FUSED, LossOf, Way, quiet, random, supcon_in
from torch import Tensor

from contune.kernels import operator
from contune.losses import tcl_loss

pytestmark = quiet
SETTINGS = (0.1, 5000.0, 1.5, "out", "high", True)


def gradient(loss: Tensor, z: Tensor) -> Tensor:
    return torch.autograd.grad(loss.sum(), z)[0]


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize(("backend", "dtype"), [("chunked", torch.float64), ("auto", torch.float32)])
def test_it_keeps_the_rules_for_operators(reduction: str, backend: str, dtype: torch.dtype) -> None:
    z, labels = random(9, dtype=dtype).requires_grad_(), torch.arange(9) % 2
    torch.library.opcheck(operator.pair_loss, (z, labels, *SETTINGS, reduction, backend))


@pytest.mark.parametrize("way", [CHUNKED, *FUSED], ids=str)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("loss_of", [tcl_loss, supcon_in])
def test_compiled_numbers_are_the_plain_ones(way: Way, reduction: str, loss_of: LossOf) -> None:
    torch.compiler.reset()  # it compiles a function only so many times, and all cases share one
    z = way.tensor(random(70, 16, way.dtype)).requires_grad_()
    labels = way.tensor(torch.arange(70) % 7)

    def compute(z: Tensor) -> Tensor:
        return loss_of(z * 2, labels, reduction=reduction, **way.settings) * 3

    compiled = torch.compile(compute, backend="aot_eager", fullgraph=True)
    plain, actual = compute(z), compiled(z)
    # Small batches that are not compiled go another way, with other roundings.
    tolerance = 2e-3 if way.precision == "fast" else 1e-5
    torch.testing.assert_close(actual, plain, rtol=tolerance, atol=0.0)
    torch.testing.assert_close(gradient(actual, z), gradient(plain, z), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("backend", ["auto", "chunked"])
def test_an_empty_batch_is_zero_when_compiled_too(backend: str) -> None:
    torch.compiler.reset()
    z, labels = torch.zeros(0, 4).requires_grad_(), torch.zeros(0, dtype=torch.long)
    compiled = torch.compile(tcl_loss, backend="aot_eager", fullgraph=True)
    loss = compiled(z, labels, backend=backend)
    assert loss == 0
    assert gradient(loss, z).shape == z.shape


def test_compiled_under_autocast_is_still_float32() -> None:
    z, labels = random(70, 16, torch.float32).requires_grad_(), torch.arange(70) % 7

    def compute(z: Tensor) -> Tensor:
        return tcl_loss(z, labels, backend="chunked")

    plain, compiled = compute(z), torch.compile(compute, backend="aot_eager", fullgraph=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        actual = compiled(z)
    assert torch.equal(actual, plain)
    assert torch.equal(gradient(actual, z), gradient(plain, z))
