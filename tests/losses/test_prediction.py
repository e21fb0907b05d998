"""The cosine regressions of BYOL and SimSiam."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from contune.errors import UserError
from contune.losses import negative_cosine_loss, regression_loss

LOSSES = (negative_cosine_loss, regression_loss)


def rows(seed: int, num: int = 7, dim: int = 5) -> Tensor:
    return torch.randn(num, dim, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def cosine(p: list[float], z: list[float]) -> float:
    return sum(a * b for a, b in zip(p, z, strict=True)) / (math.hypot(*p) * math.hypot(*z))


def test_both_against_loops() -> None:
    p_ND, z_ND = rows(0), rows(1)
    cosines = [cosine(p, z) for p, z in zip(p_ND.tolist(), z_ND.tolist(), strict=True)]
    assert negative_cosine_loss(p_ND, z_ND).item() == pytest.approx(-sum(cosines) / 7, rel=1e-12)
    distances = [
        sum((a / math.hypot(*p) - b / math.hypot(*z)) ** 2 for a, b in zip(p, z, strict=True))
        for p, z in zip(p_ND.tolist(), z_ND.tolist(), strict=True)
    ]
    assert regression_loss(p_ND, z_ND).item() == pytest.approx(sum(distances) / 7, rel=1e-12)


@pytest.mark.parametrize(("degrees", "cosine_loss", "squared"), [(0, -1, 0), (60, -0.5, 1), (90, 0, 2), (180, 1, 4)])
def test_on_angles(degrees: float, cosine_loss: float, squared: float) -> None:
    angle = math.radians(degrees)
    p_ND, z_ND = torch.tensor([[3.0, 0.0]]), torch.tensor([[0.2 * math.cos(angle), 0.2 * math.sin(angle)]])
    assert negative_cosine_loss(p_ND, z_ND).item() == pytest.approx(cosine_loss, abs=1e-6)
    assert regression_loss(p_ND, z_ND).item() == pytest.approx(squared, abs=1e-6)


@pytest.mark.parametrize("loss", LOSSES)
def test_length_order_and_rotation_do_not_matter(loss: Callable[..., Tensor]) -> None:
    p_ND, z_ND = rows(0), rows(1)
    expected = loss(p_ND, z_ND)
    lengths_N1 = rows(2, dim=1).exp()
    order_N = torch.randperm(7, generator=torch.Generator().manual_seed(3))
    rotation_DD = torch.linalg.qr(rows(4, 5, 5)).Q
    torch.testing.assert_close(loss(p_ND * lengths_N1, z_ND / lengths_N1), expected)
    torch.testing.assert_close(loss(p_ND[order_N], z_ND[order_N]), expected)
    torch.testing.assert_close(loss(p_ND @ rotation_DD, z_ND @ rotation_DD), expected)
    assert not torch.isclose(loss(p_ND[order_N], z_ND), expected)


def test_a_collapsed_batch_has_the_lowest_loss_there_is() -> None:
    """Which is why a stop-gradient and a predictor, or a slow target, have to keep training away from it."""
    same_ND = rows(0, 1).expand(7, -1)
    assert negative_cosine_loss(same_ND, 2 * same_ND).item() == pytest.approx(-1)
    assert regression_loss(same_ND, 2 * same_ND).item() == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("loss", LOSSES)
def test_gradient(loss: Callable[..., Tensor]) -> None:
    p_ND, z_ND = rows(0).requires_grad_(), rows(1).requires_grad_()
    assert torch.autograd.gradcheck(loss, (p_ND, z_ND))
    p_BD = rows(0).float().requires_grad_()
    negative_cosine_loss(p_BD, torch.zeros(7, 5)).backward()
    assert p_BD.grad is not None
    assert p_BD.grad.isfinite().all()


def test_half_precision_is_computed_in_float32() -> None:
    p_ND, z_ND = rows(0).bfloat16(), rows(1).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        found = regression_loss(p_ND, z_ND)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, regression_loss(p_ND.float(), z_ND.float()))


def test_rows_that_do_not_match_are_refused() -> None:
    with pytest.raises(UserError, match=r"predictions and targets are compared row by row.* got \(7, 5\) and \(6, 5\)"):
        regression_loss(rows(0), rows(1, num=6))
    with pytest.raises(UserError, match=r"targets must be \(N, d\), got shape \(5,\)"):
        negative_cosine_loss(rows(0), rows(1)[0])
