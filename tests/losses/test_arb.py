"""ARB against numpy in float64, and its base where the covariance is singular."""

import math

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor

from contune.errors import UserError
from contune.losses import arb_loss
from contune.losses.arb import nearest_base, newton_schulz_scales
from contune.losses.redundancy import standardized

Array = npt.NDArray[np.float64]
SHAPES = [(256, 2048), (256, 256), (512, 128), (12, 300), (1271, 63)]


def embeddings(kind: str, num: int, dim: int, seed: int = 0) -> Tensor:
    """float32, standardised, with a covariance of one kind or another."""
    generator = torch.Generator().manual_seed(seed)
    rank = {"even": min(num, dim), "low rank": 5, "steep": min(num, dim), "near a line": 1}[kind]
    steps = torch.logspace(0, -8, rank) if kind == "steep" else torch.ones(rank)
    z = (torch.randn(num, rank, generator=generator) * steps) @ torch.randn(rank, dim, generator=generator)
    noise = 1e-3 if kind == "near a line" else 0.0
    return standardized(z + noise * torch.randn(num, dim, generator=generator))


def base_of(z: Tensor, ridge: float = 1e-5) -> Tensor:
    """Of a single view."""
    return nearest_base(z[None], ridge)[0]


def numpy_standardized(z: Array) -> Array:
    return np.asarray((z - z.mean(axis=0)) / np.sqrt(z.var(axis=0) + 1e-5))


def numpy_base(z: Array, ridge: float = 1e-5) -> Array:
    """By the eigenvalues of the covariance, or of the samples' products where those are fewer."""
    num, dim = z.shape
    products = z.T @ z / num if dim <= num else z @ z.T / num
    values, vectors = np.linalg.eigh(products)
    inverse_root = (vectors / np.sqrt(np.maximum(values, 0) + ridge)) @ vectors.T
    return np.asarray(z @ inverse_root if dim <= num else inverse_root @ z)


def numpy_arb(z1: Array, z2: Array) -> float:
    z1, z2 = numpy_standardized(z1), numpy_standardized(z2)
    total = 0.0
    for one, base in ((z1, numpy_base(z2)), (z2, numpy_base(z1))):
        for d in range(one.shape[1]):
            total += (float(one[:, d] @ base[:, d]) / len(one) - 1) ** 2
    return total


@pytest.mark.parametrize("kind", ["even", "low rank", "steep", "near a line"])
@pytest.mark.parametrize(("num", "dim"), SHAPES)
def test_the_base_in_float32_is_that_of_the_eigenvalues_in_float64(kind: str, num: int, dim: int) -> None:
    """For condition numbers of the covariance up to 2 · 10⁸."""
    z = embeddings(kind, num, dim)
    error = base_of(z).double().numpy() - numpy_base(z.double().numpy())
    assert np.abs(error).max() < 1e-5
    assert np.sqrt(np.square(error).mean()) < 1e-6


def test_eigenvalues_in_float32_are_far_less_exact() -> None:
    z = embeddings("near a line", 512, 128)
    values, vectors = torch.linalg.eigh(z.T @ z / len(z))
    base = z @ (vectors * (values.clamp(min=0) + 1e-5).rsqrt()) @ vectors.T
    errors = [found.double().numpy() - numpy_base(z.double().numpy()) for found in (base, base_of(z))]
    by_eigenvalues, by_products = (float(np.sqrt(np.square(error).mean())) for error in errors)
    assert by_eigenvalues > 100 * by_products


def test_each_view_has_the_base_that_it_has_alone() -> None:
    views = torch.stack([embeddings(kind, 40, 90, seed) for seed, kind in enumerate(("even", "low rank", "steep"))])
    alone = torch.stack([base_of(z) for z in views])
    torch.testing.assert_close(nearest_base(views), alone, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("ridge", [1e-8, 1e-5, 1e-2])
def test_the_base_in_float64(ridge: float) -> None:
    for num, dim in ((40, 12), (12, 40)):
        z = embeddings("even", num, dim).double()
        np.testing.assert_allclose(base_of(z, ridge).numpy(), numpy_base(z.numpy(), ridge), atol=1e-9)


def test_the_base_is_orthonormal_where_it_can_be() -> None:
    noise = torch.randn(512, 64, generator=torch.Generator().manual_seed(0))
    base = base_of(standardized(noise))
    torch.testing.assert_close(base.T @ base / 512, torch.eye(64), rtol=0.0, atol=2e-4)
    wide = base_of(standardized(noise.T))
    values = torch.linalg.eigvalsh(wide @ wide.T / 64)
    torch.testing.assert_close(values[1:], torch.ones(63), rtol=0.0, atol=1e-3)
    assert values[0] < 1e-3, "the mean, which standardising takes away"


def test_all_steps_together_bring_every_singular_value_to_1() -> None:
    smallest = math.sqrt(1e-5 / 2048)
    scales = newton_schulz_scales(smallest, 2e-16)
    assert len(scales) == 15
    values = np.geomspace(smallest, 1, 1000)
    for scale in scales:
        values = scale * values * (3 - (scale * values) ** 2) / 2
        assert values.max() < 1 + 1e-12
    np.testing.assert_allclose(values, 1, atol=1e-14)


@pytest.mark.parametrize(("num", "dim"), [(40, 12), (12, 40), (2, 1)])
def test_the_loss_against_numpy(num: int, dim: int) -> None:
    generator = torch.Generator().manual_seed(2)
    z1 = torch.randn(num, dim, generator=generator).double()
    z2 = z1 + 0.5 * torch.randn(num, dim, generator=generator).double()
    assert arb_loss(z1, z2).item() == pytest.approx(numpy_arb(z1.numpy(), z2.numpy()), rel=1e-6, abs=1e-9)
    assert arb_loss(z1.float(), z2.float()).item() == pytest.approx(arb_loss(z1, z2).item(), rel=1e-4, abs=1e-6)


def test_no_gradient_goes_through_the_base() -> None:
    generator = torch.Generator().manual_seed(2)
    z1, z2 = (torch.randn(20, 6, generator=generator).double().requires_grad_() for _ in range(2))
    base1, base2 = (base_of(standardized(z)) for z in (z1, z2))
    expected = z1.new_zeros(())
    for z, base in ((z1, base2), (z2, base1)):
        for d in range(6):
            column = z[:, d] - z[:, d].mean()
            column = column / torch.sqrt(column.square().mean() + 1e-5)
            expected = expected + (column @ base[:, d] / 20 - 1) ** 2
    actual = arb_loss(z1, z2)
    torch.testing.assert_close(actual, expected)
    for found, wanted in zip(
        torch.autograd.grad(actual, (z1, z2)), torch.autograd.grad(expected, (z1, z2)), strict=True
    ):
        torch.testing.assert_close(found, wanted)


def test_by_hand() -> None:
    signs = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]], dtype=torch.float64)
    assert arb_loss(signs, signs).item() == pytest.approx(0, abs=1e-8), "orthonormal: its own base"
    assert arb_loss(signs, -signs).item() == pytest.approx(2 * 2 * 4, rel=1e-3)
    assert arb_loss(signs, signs[:, [1, 0]]).item() == pytest.approx(2 * 2, rel=1e-3), "each base at a right angle"
    twice = signs[:, [0, 0]]
    assert arb_loss(twice, twice).item() == pytest.approx(2 * 2 * (math.sqrt(0.5) - 1) ** 2, rel=1e-3)


def test_a_collapsed_batch_gives_twice_the_dimensions_and_finite_gradients() -> None:
    z1, z2 = (torch.full((8, 6), 0.5, requires_grad=True) for _ in range(2))
    loss = arb_loss(z1, z2)
    loss.backward()
    assert loss == 12
    for z in (z1, z2):
        assert z.grad is not None
        assert z.grad.isfinite().all()


def test_scale_shift_and_order_do_not_matter() -> None:
    generator = torch.Generator().manual_seed(3)
    z1 = torch.randn(64, 5, generator=generator).double()
    z2 = z1 + 0.3 * torch.randn(64, 5, generator=generator).double()
    expected = arb_loss(z1, z2)
    order = torch.randperm(64, generator=generator)
    torch.testing.assert_close(arb_loss(z1[order], z2[order]), expected, rtol=1e-9, atol=0.0)
    torch.testing.assert_close(arb_loss(z2, z1), expected, rtol=1e-9, atol=0.0)
    torch.testing.assert_close(arb_loss(100 * z1 + 7, 10 * z2), expected, rtol=1e-3, atol=0.0)
    assert arb_loss(z1[order], z2) > expected


def test_half_precision_and_autocast_are_computed_in_float32() -> None:
    z1 = embeddings("even", 64, 8).bfloat16()
    z2 = (z1 + 0.3 * embeddings("even", 64, 8, seed=1)).bfloat16()
    expected = arb_loss(z1.float(), z2.float())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert arb_loss(z1, z2) == expected


def test_wrong_input_is_a_sentence() -> None:
    with pytest.raises(UserError, match=r"must have one shape"):
        arb_loss(torch.zeros(3, 2), torch.zeros(4, 2))
    with pytest.raises(UserError, match="needs the variance over a batch"):
        arb_loss(torch.zeros(1, 2), torch.zeros(1, 2))
    with pytest.raises(UserError, match="ridge must be above 0"):
        arb_loss(torch.zeros(3, 2), torch.zeros(3, 2), ridge=0.0)
