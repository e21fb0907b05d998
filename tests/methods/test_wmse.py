"""Whitening, and W-MSE against numpy in float64."""

import numpy as np
import pytest
import torch
from torch import Tensor

from contune.errors import UserError
from contune.methods.wmse import whiten, wmse_loss


def mixed(num: int, dim: int, seed: int = 0) -> Tensor:
    """Dimensions that vary together, around a mean other than 0."""
    generator = torch.Generator().manual_seed(seed)
    matrix = torch.eye(dim) + 0.5 * torch.randn(dim, dim, generator=generator) / dim**0.5
    z: Tensor = torch.randn(num, dim, generator=generator) @ matrix + 5 * torch.randn(dim, generator=generator)
    return z.double()


def views(num: int, dim: int) -> tuple[Tensor, Tensor]:
    first = mixed(num, dim)
    return first, first + mixed(num, dim, seed=1)


def numpy_wmse(z1: Tensor, z2: Tensor, num_parts: int) -> float:
    """By the inverse of the covariance's Cholesky factor, one sub-batch and one sample after the other."""
    losses = []
    for part in range(num_parts):
        whitened = []
        for z in (z1, z2):
            rows = z.numpy()[part::num_parts]
            factor = np.linalg.cholesky(np.cov(rows, rowvar=False))
            whitened.append([np.linalg.inv(factor) @ (row - rows.mean(axis=0)) for row in rows])
        for one, other in zip(*whitened, strict=True):
            distance = one / np.linalg.norm(one) - other / np.linalg.norm(other)
            losses.append(float(distance @ distance))
    return float(np.mean(losses))


@pytest.mark.parametrize(("num", "dim"), [(128, 64), (20, 3), (1000, 17)])
@pytest.mark.parametrize("scale", [1e-3, 1e3])
def test_a_whitened_batch_is_white(num: int, dim: int, scale: float) -> None:
    z = scale * mixed(num, dim)
    for w, tolerance in ((whiten(z), 1e-5), (whiten(z.float()).double(), 2e-3)):
        torch.testing.assert_close(w.mean(dim=0), torch.zeros(dim).double(), rtol=0.0, atol=tolerance)
        torch.testing.assert_close(torch.cov(w.T), torch.eye(dim).double(), rtol=0.0, atol=tolerance)


@pytest.mark.parametrize(("size", "num_parts"), [(128, 1), (60, 1), (31, 1), (30, 2), (28, 2), (15, 4)])
def test_wmse_against_numpy(size: int, num_parts: int) -> None:
    """Sub-batches are equal and have `size` samples or more."""
    z1, z2 = views(60, 4)
    assert wmse_loss(z1, z2, size=size).item() == pytest.approx(numpy_wmse(z1, z2, num_parts), rel=1e-9)


def test_gradient_and_invariances() -> None:
    small = [z.requires_grad_() for z in views(10, 3)]
    assert torch.autograd.gradcheck(lambda a, b: wmse_loss(a, b, size=5), small)
    z1, z2 = views(60, 4)
    order = torch.randperm(60, generator=torch.Generator().manual_seed(1))
    expected = wmse_loss(z1, z2)
    torch.testing.assert_close(wmse_loss(z2[order], z1[order]), expected, rtol=1e-9, atol=0.0)
    torch.testing.assert_close(wmse_loss(1e-3 * z1 + 9, 100 * z2), expected, rtol=1e-5, atol=0.0)
    assert expected < wmse_loss(z1[order], z2)
    assert wmse_loss(z1, z1).item() == pytest.approx(0, abs=1e-9)
    assert wmse_loss(z1, -z1).item() == pytest.approx(4)


@pytest.mark.parametrize("kind", ["collapsed", "one line", "ten dimensions", "steep spectrum"])
@pytest.mark.parametrize(("num", "dim"), [(128, 64), (65, 64)])
def test_a_singular_covariance_stays_finite_in_float32(kind: str, num: int, dim: int) -> None:
    generator = torch.Generator().manual_seed(0)
    rank = {"collapsed": 0, "one line": 1, "ten dimensions": 10, "steep spectrum": dim}[kind]
    steps = torch.logspace(0, -8, rank) if kind == "steep spectrum" else torch.ones(rank)
    z1 = (torch.randn(num, rank, generator=generator) * steps) @ torch.randn(rank, dim, generator=generator) + 0.5
    z1.requires_grad_()
    loss = wmse_loss(z1, z1.detach().roll(1, dims=0), size=num)
    assert loss == 2 if kind == "collapsed" else loss.isfinite()
    assert torch.autograd.grad(loss, z1)[0].isfinite().all()


def test_too_few_samples_raise() -> None:
    with pytest.raises(UserError, match="batch_images"):
        wmse_loss(*views(64, 20), size=16)
