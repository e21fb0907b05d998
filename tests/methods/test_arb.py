"""ARB against numpy in float64, and its base where the covariance is singular."""

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor

from contune.methods.arb import arb_loss, nearest_base
from contune.methods.view_pairs import standardized_views

Array = npt.NDArray[np.float64]


def embeddings(kind: str, num: int, dim: int, seed: int = 0) -> Tensor:
    """float32, standardized, with one kind of covariance or another."""
    generator = torch.Generator().manual_seed(seed)
    rank = {"even": min(num, dim), "low rank": 5, "steep": min(num, dim), "near a line": 1}[kind]
    steps = torch.logspace(0, -8, rank) if kind == "steep" else torch.ones(rank)
    z = (torch.randn(num, rank, generator=generator) * steps) @ torch.randn(rank, dim, generator=generator)
    noise = 1e-3 if kind == "near a line" else 0.0
    return standardized_views(z + noise * torch.randn(num, dim, generator=generator))[0]


def numpy_base(z: Array, ridge: float = 1e-5) -> Array:
    """By the eigenvalues of the covariance, or of the samples' products if those are fewer."""
    num, dim = z.shape
    values, vectors = np.linalg.eigh(z.T @ z / num if dim <= num else z @ z.T / num)
    inverse_root = (vectors / np.sqrt(np.maximum(values, 0) + ridge)) @ vectors.T
    return np.asarray(z @ inverse_root if dim <= num else inverse_root @ z)


def numpy_arb(z1: Array, z2: Array) -> float:
    z1, z2 = ((z - z.mean(axis=0)) / np.sqrt(z.var(axis=0) + 1e-5) for z in (z1, z2))
    pairs = ((z1, numpy_base(z2)), (z2, numpy_base(z1)))
    return sum((float(one[:, d] @ base[:, d]) / len(one) - 1) ** 2 for one, base in pairs for d in range(one.shape[1]))


@pytest.mark.parametrize("kind", ["even", "low rank", "steep", "near a line"])
@pytest.mark.parametrize(("num", "dim"), [(256, 2048), (512, 128), (12, 300), (1271, 63)])
def test_the_base_in_float32_is_that_of_the_eigenvalues_in_float64(kind: str, num: int, dim: int) -> None:
    """For condition numbers of the covariance up to 2 · 10⁸."""
    z = embeddings(kind, num, dim)
    error = nearest_base(z[None])[0].double().numpy() - numpy_base(z.double().numpy())
    assert np.abs(error).max() < 1e-5
    assert np.sqrt(np.square(error).mean()) < 1e-6


def test_each_view_has_its_own_orthonormal_base() -> None:
    views = torch.stack([embeddings(kind, 40, 90, seed) for seed, kind in enumerate(("even", "low rank", "steep"))])
    alone = torch.cat([nearest_base(z[None]) for z in views])
    torch.testing.assert_close(nearest_base(views), alone, rtol=1e-4, atol=1e-4)
    noise = torch.randn(512, 64, generator=torch.Generator().manual_seed(0))
    (base,) = nearest_base(standardized_views(noise))
    torch.testing.assert_close(base.T @ base / 512, torch.eye(64), rtol=0.0, atol=1e-3)


@pytest.mark.parametrize(("num", "dim"), [(40, 12), (12, 40), (2, 1)])
def test_the_loss_against_numpy(num: int, dim: int) -> None:
    generator = torch.Generator().manual_seed(2)
    z1 = torch.randn(num, dim, generator=generator).double()
    z2 = z1 + 0.5 * torch.randn(num, dim, generator=generator).double()
    assert arb_loss(z1, z2).item() == pytest.approx(numpy_arb(z1.numpy(), z2.numpy()), rel=1e-6, abs=1e-9)
    assert arb_loss(z1.float(), z2.float()).item() == pytest.approx(arb_loss(z1, z2).item(), rel=1e-4, abs=1e-6)
    order = torch.randperm(num, generator=generator)
    torch.testing.assert_close(arb_loss(z2[order], z1[order]), arb_loss(z1, z2), rtol=1e-8, atol=1e-12)


def test_no_gradient_flows_through_the_base() -> None:
    generator = torch.Generator().manual_seed(2)
    z1, z2 = (torch.randn(20, 6, generator=generator).double().requires_grad_() for _ in range(2))
    bases = [nearest_base(standardized_views(z))[0] for z in (z2, z1)]
    products = [(standardized_views(z)[0] * base).mean(dim=0) for z, base in zip((z1, z2), bases, strict=True)]
    expected = (torch.stack(products) - 1).square().sum()
    found = torch.autograd.grad(arb_loss(z1, z2), (z1, z2))
    torch.testing.assert_close(found, torch.autograd.grad(expected, (z1, z2)))


def test_by_hand() -> None:
    signs = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]], dtype=torch.float64)
    assert arb_loss(signs, signs).item() == pytest.approx(0, abs=1e-8), "orthonormal: its own base"
    assert arb_loss(signs, -signs).item() == pytest.approx(2 * 2 * 4, rel=1e-3)
    assert arb_loss(signs, signs[:, [1, 0]]).item() == pytest.approx(2 * 2, rel=1e-3), "each base at a right angle"
    point = torch.full((8, 6), 0.5, requires_grad=True)
    loss = arb_loss(point, point.detach())
    assert loss == 12, "collapsed: twice the dimensions"
    assert torch.autograd.grad(loss, point)[0].isfinite().all()
