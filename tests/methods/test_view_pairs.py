"""VICReg and Barlow Twins against nested loops and by hand, and the base of all methods that compare whole views."""

import math
from collections.abc import Callable
from itertools import combinations

import pytest
import torch
from test_every_method import batch, build
from torch import Tensor

from contune.methods.arb import arb_loss
from contune.methods.barlow_twins import barlow_twins_loss
from contune.methods.vicreg import vicreg_loss
from contune.methods.view_pairs import ViewPairMethod
from contune.methods.wmse import wmse_loss

LOSSES = (barlow_twins_loss, vicreg_loss)
SIGNS = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]], dtype=torch.float64)
"""Two uncorrelated dimensions of mean 0 and variance 1."""


def two_views(num: int = 9, dim: int = 5) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    first = torch.randn(num, dim, generator=generator).double() @ torch.randn(dim, dim, generator=generator).double()
    return first, first + 0.3 * torch.randn(num, dim, generator=generator).double()


def columns(z: Tensor) -> list[Tensor]:
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
    total = invariance * sum((z1[i, d] - z2[i, d]) ** 2 / (num * dim) for i in range(num) for d in range(dim))
    for z in (z1, z2):
        for i, one in enumerate(columns(z)):
            total = total + variance * torch.relu(1 - torch.sqrt((one * one).sum() / (num - 1) + 1e-4)) / dim
            for j, other in enumerate(columns(z)):
                total = total + (i != j) * covariance * ((one * other).sum() / (num - 1)) ** 2 / dim
    return torch.as_tensor(total)


@pytest.mark.parametrize(("num", "dim"), [(9, 5), (4, 7), (4, 8), (3, 11), (2, 1)])
@pytest.mark.parametrize("scale", [1.0, 0.1])
def test_against_nested_loops(num: int, dim: int, scale: float) -> None:
    z1, z2 = views = [(scale * z).requires_grad_() for z in two_views(num, dim)]
    weights = {"invariance": 3.0, "variance": 5.0, "covariance": 0.7}
    for actual, expected in (
        (barlow_twins_loss(z1, z2, redundancy=0.2), nested_barlow(z1, z2, 0.2)),
        (vicreg_loss(z1, z2, **weights), nested_vicreg(z1, z2, **weights)),
    ):
        torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)
        for found, wanted in zip(torch.autograd.grad(actual, views), torch.autograd.grad(expected, views), strict=True):
            torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-10)


def test_by_hand() -> None:
    twice, swapped, wide = SIGNS[:, [0, 0]], SIGNS[:, [1, 0]], SIGNS * 3
    assert barlow_twins_loss(SIGNS, SIGNS).item() == pytest.approx(0, abs=1e-9), "equal and decorrelated"
    assert barlow_twins_loss(SIGNS, -SIGNS).item() == pytest.approx(2 * 4, rel=1e-4)
    assert barlow_twins_loss(twice, twice, redundancy=0.1).item() == pytest.approx(0.2, rel=1e-4)
    assert barlow_twins_loss(SIGNS, swapped, redundancy=0.1).item() == pytest.approx(2 + 0.2, rel=1e-4)
    assert vicreg_loss(wide, wide) == 0, "equal, wide and decorrelated"
    assert vicreg_loss(wide, wide + 2).item() == pytest.approx(25 * 4)
    assert vicreg_loss(3 * twice, 3 * twice).item() == pytest.approx(2 * 12**2), "variance 9 · 4/3"
    for deviation, missing in ((0.25, 0.75), (0.9, 0.1), (1.1, 0.0)):
        z = SIGNS[:, :1] * math.sqrt(3 / 4) * math.sqrt(deviation**2 - 1e-4)
        assert vicreg_loss(z, z, covariance=0.0).item() == pytest.approx(2 * 25 * missing), "the hinge"


@pytest.mark.parametrize(("loss", "collapsed"), [(barlow_twins_loss, 6.0), (vicreg_loss, 2 * 25 * 0.99)])
def test_invariances_and_collapse(loss: Callable[..., Tensor], collapsed: float) -> None:
    z1, z2 = two_views()
    order = torch.randperm(len(z1), generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(loss(z1[order], z2[order]), loss(z1, z2), rtol=1e-10, atol=0.0)
    torch.testing.assert_close(loss(z2, z1), loss(z1, z2), rtol=1e-10, atol=0.0)
    torch.testing.assert_close(loss(z1 + 3, z2 + 3), loss(z1, z2), rtol=1e-9, atol=0.0)
    assert loss(z1[order], z2) != loss(z1, z2)
    point = torch.full((8, 6), 0.5, requires_grad=True)
    found = loss(point, point.detach())
    (gradient,) = torch.autograd.grad(found, point)
    assert found.item() == pytest.approx(collapsed)
    assert gradient.isfinite().all()


@pytest.mark.parametrize("num_views", [2, 3])
def test_each_method_is_the_mean_of_its_loss_over_pairs_of_views(num_views: int) -> None:
    views, _ = batch(num_views)
    cases: list[tuple[str, dict[str, float], Callable[..., Tensor]]] = [
        ("vicreg", {"invariance": 3.0, "variance": 4.0, "covariance": 0.5}, vicreg_loss),
        ("barlow-twins", {"redundancy": 0.03}, barlow_twins_loss),
        ("w-mse", {"whitening_size": 6}, lambda a, b, whitening_size: wmse_loss(a, b, size=int(whitening_size))),
        ("arb", {"ridge": 0.01}, arb_loss),
    ]
    for name, knobs, loss in cases:
        method = build(name, **knobs)
        assert isinstance(method, ViewPairMethod)
        z_VBD = method.projector(method.encoder(torch.cat(views))).chunk(num_views)
        scale = getattr(method.settings, "loss_scale", 1.0)
        expected = scale * torch.stack([loss(a, b, **knobs) for a, b in combinations(z_VBD, 2)]).mean()
        torch.testing.assert_close(method(views, None).loss, expected, rtol=1e-6, atol=0.0)
