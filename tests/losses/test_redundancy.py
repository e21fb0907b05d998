"""Barlow Twins and VICReg against nested loops, hand-computed batches and their invariances."""

import math

import pytest
import torch
from torch import Tensor

from contune.errors import UserError
from contune.losses import barlow_twins_loss, vicreg_loss
from contune.losses.redundancy import off_diagonal, standardized

LOSSES = (barlow_twins_loss, vicreg_loss)
SIGNS = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]], dtype=torch.float64)
"""Two dimensions of mean 0 and variance 1 that do not vary together."""


def two_views(num: int = 9, dim: int = 5, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    first = torch.randn(num, dim, generator=generator).double() @ torch.randn(dim, dim, generator=generator).double()
    return first, first + 0.3 * torch.randn(num, dim, generator=generator).double()


def columns(z: Tensor) -> list[Tensor]:
    """Each dimension less its mean."""
    return [column - column.mean() for column in z.T]


def nested_barlow(z1: Tensor, z2: Tensor, redundancy: float) -> Tensor:
    total = z1.new_zeros(())
    for i, one in enumerate(columns(z1)):
        for j, other in enumerate(columns(z2)):
            deviations = torch.sqrt(one.square().mean() + 1e-5) * torch.sqrt(other.square().mean() + 1e-5)
            correlation = (one * other).mean() / deviations
            total = total + ((1 - correlation) ** 2 if i == j else redundancy * correlation**2)
    return total


def nested_vicreg(z1: Tensor, z2: Tensor, invariance: float, variance: float, covariance: float) -> Tensor:
    num, dim = z1.shape
    total = z1.new_zeros(())
    for i in range(num):
        for d in range(dim):
            total = total + invariance * (z1[i, d] - z2[i, d]) ** 2 / (num * dim)
    for z in (z1, z2):
        for i, one in enumerate(columns(z)):
            deviation = torch.sqrt((one * one).sum() / (num - 1) + 1e-4)
            total = total + variance * torch.relu(1 - deviation) / dim
            for j, other in enumerate(columns(z)):
                if i != j:
                    total = total + covariance * ((one * other).sum() / (num - 1)) ** 2 / dim
    return total


@pytest.mark.parametrize(("num", "dim"), [(9, 5), (4, 7), (4, 8), (3, 11), (2, 1)])
@pytest.mark.parametrize("scale", [1.0, 0.1])
def test_against_nested_loops(num: int, dim: int, scale: float) -> None:
    z1, z2 = views = [(scale * z).requires_grad_() for z in two_views(num, dim)]
    for actual, expected in (
        (barlow_twins_loss(z1, z2, redundancy=0.2), nested_barlow(z1, z2, 0.2)),
        (
            vicreg_loss(z1, z2, invariance=3.0, variance=5.0, covariance=0.7),
            nested_vicreg(z1, z2, invariance=3.0, variance=5.0, covariance=0.7),
        ),
    ):
        torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)
        for found, wanted in zip(torch.autograd.grad(actual, views), torch.autograd.grad(expected, views), strict=True):
            torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-10)


def as_spread_as_can_be(num: int, dim: int) -> Tensor:
    """Where both losses lead to: dimensions of variance 1, and no direction with more variance than another."""
    generator = torch.Generator().manual_seed(0)
    columns_BB = torch.cat([torch.ones(num, 1), torch.randn(num, num - 1, generator=generator)], dim=1).double()
    samples = torch.linalg.qr(columns_BB).Q[:, 1:]
    directions = torch.linalg.qr(torch.randn(dim, num - 1, generator=generator).double()).Q
    z_BD: Tensor = samples @ directions.T
    return z_BD / z_BD.std(dim=0)


@pytest.mark.parametrize(("num", "dim"), [(64, 512), (64, 128), (64, 127)])
@pytest.mark.parametrize("kind", ["random", "correlated", "far off", "converged"])
def test_in_float32_the_products_of_samples_are_as_exact_as_those_of_dimensions(num: int, dim: int, kind: str) -> None:
    """A difference of two sums on one side of twice as many dimensions as samples, one sum on the other."""
    generator = torch.Generator().manual_seed(1)
    noise = torch.randn(num, dim, generator=generator).double()
    z1 = {
        "random": noise,
        "correlated": noise[:, :9] @ noise[:9] + 0.1 * noise,
        "far off": noise + 30,
        "converged": as_spread_as_can_be(num, dim),
    }[kind]
    z2 = z1 + 0.05 * z1.std(dim=0) * torch.randn(num, dim, generator=generator).double()
    for loss in LOSSES:
        exact, rounded = ([z.to(dtype).requires_grad_() for z in (z1, z2)] for dtype in (torch.float64, torch.float32))
        expected, found = loss(*exact), loss(*rounded)
        assert found.item() == pytest.approx(expected.item(), rel=1e-5)
        wanted, given = (
            torch.autograd.grad(value, z)[0].double() for value, z in ((expected, exact), (found, rounded))
        )
        assert (given - wanted).norm() < 5e-5 * wanted.norm()


def test_barlow_twins_by_hand() -> None:
    assert barlow_twins_loss(SIGNS, SIGNS).item() == pytest.approx(0, abs=1e-9), "equal and decorrelated"
    assert barlow_twins_loss(SIGNS, -SIGNS).item() == pytest.approx(2 * 4, rel=1e-4)
    twice = SIGNS[:, [0, 0]]
    assert barlow_twins_loss(twice, twice, redundancy=0.1).item() == pytest.approx(0.2, rel=1e-4), (
        "two off the diagonal"
    )
    swapped = SIGNS[:, [1, 0]]
    assert barlow_twins_loss(SIGNS, swapped, redundancy=0.1).item() == pytest.approx(2 + 0.2, rel=1e-4)


def test_vicreg_by_hand() -> None:
    wide = SIGNS * 3
    assert vicreg_loss(wide, wide) == 0, "agreed, wide and decorrelated"
    assert vicreg_loss(wide, wide + 2).item() == pytest.approx(25 * 4)
    assert vicreg_loss(wide, -wide).item() == pytest.approx(25 * 36)
    twice = wide[:, [0, 0]]
    variance = 9 * 4 / 3
    assert vicreg_loss(twice, twice).item() == pytest.approx(2 * variance**2)


def test_vicregs_hinge_acts_below_a_deviation_of_1_alone() -> None:
    for deviation, missing in ((0.25, 0.75), (0.9, 0.1), (1.1, 0.0), (5.0, 0.0)):
        z = SIGNS[:, :1] * math.sqrt(3 / 4) * math.sqrt(deviation**2 - 1e-4)
        assert vicreg_loss(z, z, covariance=0.0).item() == pytest.approx(2 * 25 * missing)
    z = (SIGNS * 2).requires_grad_()
    vicreg_loss(z, z, invariance=0.0, covariance=0.0).backward()
    assert z.grad is not None
    assert not z.grad.any()


def test_a_collapsed_batch_has_the_documented_value_and_finite_gradients() -> None:
    for loss, value in ((barlow_twins_loss, 6.0), (vicreg_loss, 2 * 25 * 0.99)):
        z1, z2 = (torch.full((8, 6), 0.5, requires_grad=True) for _ in range(2))
        found = loss(z1, z2)
        found.backward()
        assert found.item() == pytest.approx(value)
        for z in (z1, z2):
            assert z.grad is not None
            assert z.grad.isfinite().all()


def test_barlow_twins_does_not_see_scale_and_shift() -> None:
    z1, z2 = two_views(64)
    moved = z1 * torch.tensor([100.0, 20.0, 3000.0, 50.0, 10.0]) + 7
    torch.testing.assert_close(barlow_twins_loss(moved, 30 * z2), barlow_twins_loss(z1, z2), rtol=1e-4, atol=0.0)


def test_vicreg_does_not_see_a_shift_of_both_views() -> None:
    z1, z2 = two_views()
    torch.testing.assert_close(vicreg_loss(z1 + 3, z2 + 3), vicreg_loss(z1, z2), rtol=1e-10, atol=0.0)


@pytest.mark.parametrize("loss", LOSSES)
def test_neither_the_order_of_the_batch_nor_that_of_the_views_matters(loss: type) -> None:
    z1, z2 = two_views()
    order = torch.randperm(len(z1), generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(loss(z1[order], z2[order]), loss(z1, z2), rtol=1e-10, atol=0.0)
    torch.testing.assert_close(loss(z2, z1), loss(z1, z2), rtol=1e-10, atol=0.0)
    assert loss(z1[order], z2) != loss(z1, z2)


@pytest.mark.parametrize("loss", LOSSES)
def test_half_precision_and_autocast_are_computed_in_float32(loss: type) -> None:
    z1, z2 = (z.bfloat16() for z in two_views(32))
    expected = loss(z1.float(), z2.float())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert loss(z1, z2) == expected
        assert loss(z1, z2).dtype == torch.float32


@pytest.mark.parametrize("loss", LOSSES)
def test_wrong_input_is_a_sentence(loss: type) -> None:
    with pytest.raises(UserError, match=r"must have one shape, got \(3, 2\) and \(4, 2\)"):
        loss(torch.zeros(3, 2), torch.zeros(4, 2))
    with pytest.raises(UserError, match="needs the variance over a batch, and 1 sample has none; give 2 or more"):
        loss(torch.zeros(1, 2), torch.zeros(1, 2))


def test_wrong_knobs() -> None:
    z1, z2 = two_views()
    with pytest.raises(UserError, match="redundancy must be 0 or above"):
        barlow_twins_loss(z1, z2, redundancy=-1.0)
    with pytest.raises(UserError, match="covariance must be 0 or above"):
        vicreg_loss(z1, z2, covariance=-1.0)


def test_the_parts() -> None:
    z = two_views(16)[0]
    torch.testing.assert_close(standardized(100 * z).var(dim=0, unbiased=False), torch.ones(5).double())
    assert off_diagonal(torch.tensor([[1.0, 2.0], [3.0, 4.0]])).tolist() == [[0.0, 2.0], [3.0, 0.0]]
